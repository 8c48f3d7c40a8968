#include "server/inspect/profile_rows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/inspect/surroundings.h"

namespace warpcall::inspect {
namespace {

const char* KindOf(DeviceActivity::Kind kind) {
  switch (kind) {
    case DeviceActivity::Kind::kKernel:
      return kKernelRow;
    case DeviceActivity::Kind::kCopy:
      return kCopyRow;
    case DeviceActivity::Kind::kSet:
      break;
  }
  return kSetRow;
}

// A row whose shares of a peak are not known.
v1::ProfileRow NewRow(const char* kind, std::string name) {
  v1::ProfileRow row;
  row.set_kind(kind);
  row.set_name(std::move(name));
  row.set_achieved_occupancy(-1);
  row.set_sm_throughput(-1);
  row.set_dram_throughput(-1);
  return row;
}

v1::ProfileRow NewRow(const DeviceActivity& activity) {
  v1::ProfileRow row = NewRow(KindOf(activity.kind), activity.name);
  row.set_step(activity.step);
  row.set_registers_per_thread(activity.registers_per_thread);
  row.set_shared_memory_bytes(activity.shared_memory_bytes);
  row.set_grid(Extent(activity.grid));
  row.set_block(Extent(activity.block));
  return row;
}

v1::ProfileRow* AddRow(v1::ProfileRow row, ProfileRows* rows) {
  rows->Add(std::move(row));
  return rows->Mutable(rows->size() - 1);
}

void AddCalls(int64_t calls, int64_t ns, v1::ProfileRow* row) {
  row->set_calls(row->calls() + calls);
  row->set_total_ns(row->total_ns() + ns);
}

void AddCounters(const std::vector<KernelCounters>& counters, v1::ProfileRow* row) {
  double calls = 0;
  KernelCounters sum;
  for (const KernelCounters& kernel : counters) {
    if (kernel.name != row->name()) continue;
    calls += 1;
    sum.achieved_occupancy += kernel.achieved_occupancy;
    sum.sm_throughput += kernel.sm_throughput;
    sum.dram_throughput += kernel.dram_throughput;
  }
  if (calls == 0) return;
  row->set_achieved_occupancy(sum.achieved_occupancy / calls);
  row->set_sm_throughput(sum.sm_throughput / calls);
  row->set_dram_throughput(sum.dram_throughput / calls);
}

// The device's time over all runs, and the number and length of the gaps without work.
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

void AddDeviceRows(const Watched& watched, ProfileRows* rows) {
  using Key =
      std::tuple<DeviceActivity::Kind, std::string, std::string, std::string, std::string, int64_t>;
  std::map<Key, v1::ProfileRow> found;
  for (const DeviceActivity& activity : watched.activities) {
    const Key key = {activity.kind,         activity.step,          activity.name,
                     Extent(activity.grid), Extent(activity.block), activity.shared_memory_bytes};
    v1::ProfileRow& row = found.try_emplace(key, NewRow(activity)).first->second;
    AddCalls(1, activity.end_ns - activity.start_ns, &row);
    row.set_bytes(row.bytes() + activity.bytes);
  }
  const DeviceTime time = DeviceTimeOf(watched);
  for (auto& [key, row] : found) {
    if (row.kind() == kKernelRow) AddCounters(watched.counters, &row);
    rows->Add(std::move(row));
  }
  if (time.gaps > 0)
    AddCalls(time.gaps, time.gap_ns, AddRow(NewRow(kGapRow, "nothing to do"), rows));
  for (v1::ProfileRow& row : *rows)
    if (time.span_ns > 0)
      row.set_fraction(static_cast<double>(row.total_ns()) / static_cast<double>(time.span_ns));
}

void AddHostRows(const Watched& watched, ProfileRows* rows) {
  std::map<std::string, v1::ProfileRow> found;
  const auto add = [&](const std::string& name, int64_t ns) {
    AddCalls(1, ns, &found.try_emplace(name, NewRow(kHostRow, name)).first->second);
  };
  for (const ProfiledRun& run : watched.runs) {
    add(kRunRow, run.done_ns - run.submitted_ns);
    if (run.queue_ns >= 0) add("queue", run.queue_ns);
  }
  for (const RecordedPhase& phase : watched.phases) add(phase.name, phase.end_ns - phase.start_ns);
  for (auto& [name, row] : found) rows->Add(std::move(row));
}

void AddThreadRows(const Watched& watched, ProfileRows* rows) {
  const auto add = [&](std::string name, int64_t ns) -> v1::ProfileRow* {
    v1::ProfileRow* const row = AddRow(NewRow(kThreadRow, std::move(name)), rows);
    AddCalls(static_cast<int64_t>(watched.runs.size()), ns, row);
    return row;
  };
  int64_t runs_ns = 0;
  for (const ProfiledRun& run : watched.runs) runs_ns += run.done_ns - run.submitted_ns;
  int64_t waiting_ns = 0;
  int number = 0;
  for (const ThreadTime& thread : watched.host.threads) {
    v1::ProfileRow* const row = add(absl::StrCat("cpu thread ", number++), thread.running_ns);
    if (runs_ns > 0)
      // Threads are watched a little longer than the runs take.
      row->set_fraction(
          std::min(1.0, static_cast<double>(thread.running_ns) / static_cast<double>(runs_ns)));
    waiting_ns += thread.waiting_ns;
  }
  if (waiting_ns > 0) add(kWaitingRow, waiting_ns);
}

void AddCounterRows(const Watched& watched, ProfileRows* rows) {
  for (const HostCount& count : watched.host.counts) {
    v1::ProfileRow* const row = AddRow(NewRow(kCounterRow, count.name), rows);
    row->set_calls(count.count);
    row->set_bytes(count.bytes);
  }
}

}  // namespace

std::string Extent(const uint32_t (&extent)[3]) {
  return extent[0] == 0 ? "" : absl::StrCat(extent[0], "x", extent[1], "x", extent[2]);
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

ProfileRows RowsOf(const Watched& watched) {
  ProfileRows rows;
  AddDeviceRows(watched, &rows);
  AddHostRows(watched, &rows);
  AddThreadRows(watched, &rows);
  AddCounterRows(watched, &rows);
  for (v1::ProfileRow& row : rows)
    if (row.calls() > 0)
      row.set_mean_ns(static_cast<double>(row.total_ns()) / static_cast<double>(row.calls()));
  std::stable_sort(rows.begin(), rows.end(), [](const v1::ProfileRow& a, const v1::ProfileRow& b) {
    return a.total_ns() > b.total_ns();
  });
  return rows;
}

}  // namespace warpcall::inspect
