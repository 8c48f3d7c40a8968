#include "server/inspect/profile_rows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/inspect/surroundings.h"

namespace warpcall::inspect {
namespace {

ProfileRow::Kind KindOf(DeviceActivity::Kind kind) {
  switch (kind) {
    case DeviceActivity::Kind::kKernel:
      return ProfileRow::Kind::kKernel;
    case DeviceActivity::Kind::kCopy:
      return ProfileRow::Kind::kCopy;
    case DeviceActivity::Kind::kSet:
      break;
  }
  return ProfileRow::Kind::kSet;
}

ProfileRow NewRow(const DeviceActivity& activity) {
  ProfileRow row;
  row.kind = KindOf(activity.kind);
  row.name = activity.name;
  row.registers_per_thread = activity.registers_per_thread;
  row.shared_memory_bytes = activity.shared_memory_bytes;
  row.grid = Extent(activity.grid);
  row.block = Extent(activity.block);
  return row;
}

void AddCounters(const std::vector<KernelCounters>& counters, ProfileRow* row) {
  double calls = 0;
  KernelCounters sum;
  for (const KernelCounters& kernel : counters) {
    if (kernel.name != row->name) continue;
    calls += 1;
    sum.achieved_occupancy += kernel.achieved_occupancy;
    sum.sm_throughput += kernel.sm_throughput;
    sum.dram_throughput += kernel.dram_throughput;
  }
  if (calls == 0) return;
  row->achieved_occupancy = sum.achieved_occupancy / calls;
  row->sm_throughput = sum.sm_throughput / calls;
  row->dram_throughput = sum.dram_throughput / calls;
}

// The device's time over all runs, and in how many gaps it had nothing to do how long.
struct DeviceTime {
  int64_t span_ns = 0;
  int64_t gaps = 0;
  int64_t gap_ns = 0;
};

DeviceTime DeviceTimeOf(const Watched& watched) {
  DeviceTime time;
  auto at = watched.activities.begin();
  for (const ProfiledRun& run : watched.runs) {
    while (at != watched.activities.end() && at->start_ns < run.submitted_ns) ++at;
    if (at == watched.activities.end() || at->start_ns > run.done_ns) continue;
    const int64_t first_ns = at->start_ns;
    int64_t reached_ns = first_ns;
    for (; at != watched.activities.end() && at->start_ns <= run.done_ns; ++at) {
      if (at->start_ns > reached_ns) {
        ++time.gaps;
        time.gap_ns += at->start_ns - reached_ns;
      }
      reached_ns = std::max(reached_ns, at->end_ns);
    }
    time.span_ns += reached_ns - first_ns;
  }
  return time;
}

void AddDeviceRows(const Watched& watched, std::vector<ProfileRow>* rows) {
  using Key = std::tuple<DeviceActivity::Kind, std::string, std::string, std::string, int64_t>;
  std::map<Key, ProfileRow> found;
  for (const DeviceActivity& activity : watched.activities) {
    const Key key = {activity.kind, activity.name, Extent(activity.grid), Extent(activity.block),
                     activity.shared_memory_bytes};
    ProfileRow& row = found.try_emplace(key, NewRow(activity)).first->second;
    ++row.calls;
    row.total_ns += activity.end_ns - activity.start_ns;
    row.bytes += activity.bytes;
  }
  const DeviceTime time = DeviceTimeOf(watched);
  for (auto& [key, row] : found) {
    if (row.kind == ProfileRow::Kind::kKernel) AddCounters(watched.counters, &row);
    rows->push_back(std::move(row));
  }
  if (time.gaps > 0) {
    ProfileRow& row = rows->emplace_back();
    row.kind = ProfileRow::Kind::kGap;
    row.name = "nothing to do";
    row.calls = time.gaps;
    row.total_ns = time.gap_ns;
  }
  for (ProfileRow& row : *rows)
    if (time.span_ns > 0)
      row.fraction = static_cast<double>(row.total_ns) / static_cast<double>(time.span_ns);
}

void AddHostRows(const Watched& watched, std::vector<ProfileRow>* rows) {
  std::map<std::string, ProfileRow> found;
  const auto add = [&](const std::string& name, int64_t ns) {
    ProfileRow& row = found[name];
    row.kind = ProfileRow::Kind::kHost;
    row.name = name;
    ++row.calls;
    row.total_ns += ns;
  };
  for (const ProfiledRun& run : watched.runs) {
    add(kRunRow, run.done_ns - run.submitted_ns);
    if (run.queue_ns >= 0) add("queue", run.queue_ns);
  }
  for (const RecordedPhase& phase : watched.phases) add(phase.name, phase.end_ns - phase.start_ns);
  for (auto& [name, row] : found) rows->push_back(std::move(row));
}

void AddThreadRows(const Watched& watched, std::vector<ProfileRow>* rows) {
  const auto add = [&](std::string name, int64_t ns) -> ProfileRow& {
    ProfileRow& row = rows->emplace_back();
    row.kind = ProfileRow::Kind::kThread;
    row.name = std::move(name);
    row.calls = static_cast<int64_t>(watched.runs.size());
    row.total_ns = ns;
    return row;
  };
  int64_t runs_ns = 0;
  for (const ProfiledRun& run : watched.runs) runs_ns += run.done_ns - run.submitted_ns;
  int64_t waiting_ns = 0;
  int number = 0;
  for (const ThreadTime& thread : watched.host.threads) {
    ProfileRow& row = add(absl::StrCat("cpu thread ", number++), thread.running_ns);
    if (runs_ns > 0)
      // Threads are watched a little longer than the runs take.
      row.fraction =
          std::min(1.0, static_cast<double>(thread.running_ns) / static_cast<double>(runs_ns));
    waiting_ns += thread.waiting_ns;
  }
  if (waiting_ns > 0) add(kWaitingRow, waiting_ns);
}

void AddCounterRows(const Watched& watched, std::vector<ProfileRow>* rows) {
  for (const HostCount& count : watched.host.counts) {
    ProfileRow& row = rows->emplace_back();
    row.kind = ProfileRow::Kind::kCounter;
    row.name = count.name;
    row.calls = count.count;
    row.bytes = count.bytes;
  }
}

}  // namespace

std::string Extent(const uint32_t (&extent)[3]) {
  return extent[0] == 0 ? "" : absl::StrCat(extent[0], "x", extent[1], "x", extent[2]);
}

const char* KindName(ProfileRow::Kind kind) {
  constexpr const char* kNames[] = {"kernel", "copy", "set", "gap", "host", "thread", "counter"};
  return kNames[static_cast<int>(kind)];
}

std::string WhyInconclusive(const Watched& watched) {
  int64_t running_ns = 0;
  for (const ThreadTime& thread : watched.host.threads) running_ns += thread.running_ns;
  int64_t runs_ns = 0;
  for (const ProfiledRun& run : watched.runs) runs_ns += run.done_ns - run.submitted_ns;
  const bool on_cpu = !watched.host.threads.empty();
  const int64_t all_ns =
      on_cpu ? running_ns + watched.others_ns : std::max(runs_ns, watched.others_ns);
  const auto others_ns = static_cast<double>(watched.others_ns);
  if (others_ns <= kOtherWorkShareMax * static_cast<double>(all_ns)) return "";
  return absl::StrCat("other work took ", 100 * watched.others_ns / all_ns,
                      " % of the threads' time");
}

std::vector<ProfileRow> RowsOf(const Watched& watched) {
  std::vector<ProfileRow> rows;
  AddDeviceRows(watched, &rows);
  AddHostRows(watched, &rows);
  AddThreadRows(watched, &rows);
  AddCounterRows(watched, &rows);
  std::stable_sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.total_ns > b.total_ns;
  });
  return rows;
}

}  // namespace warpcall::inspect
