#include "server/transport/bandwidths.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "proto/common/status_macros.h"
#include "server/log/log.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

// Measuring disturbs the server's first requests: starting another process on a GPU alone slows 4
// KiB of gelu from 14 us to 38 to 82 us. So a device is measured after it has done little for a
// while, or, if it is never idle, after some time.
constexpr int64_t kQuietNs = 2'000'000'000;
constexpr double kQuietShareMax = 0.01;
constexpr int64_t kPatienceNs = 30'000'000'000;
// A neighbour that uses the memory during a reading lowers it: on one busy machine 50 readings were
// between 10 and 75 GB/s. So devices are measured again, after a minute and then after twice as
// long each time, until two readings agree.
constexpr double kNoiseMax = 0.1;
constexpr int kRounds = 7;  // the last one an hour after the start
constexpr int64_t kPauseNs = 60'000'000'000;
// The measurement takes under 5 s. Callers' inspections wait for a process that hangs.
constexpr int64_t kMeasureNsMax = 30'000'000'000;

// The measurement has no caller that could cancel it.
const std::atomic<bool> never_cancelled{false};

void LogOutcome(const Engine& engine, int device, const absl::Status& status) {
  const std::string& name = engine.device(device).properties().name;
  if (status.ok())
    Log(LogLevel::kInfo, "copy bandwidth measured",
        {{"device", name},
         {"bytes_per_second", engine.bandwidth(device).bytes_per_second},
         {"noise", engine.bandwidth(device).noise}});
  else if (!absl::IsUnavailable(status))  // the server stops, or the device is lost
    Log(LogLevel::kWarning, "copy bandwidth not measured",
        {{"device", name}, {"error", status.message()}});
}

// A device to measure, before those after it.
struct Measurement {
  int device = 0;
  int round = 0;
  int64_t not_before_ns = 0;
  int64_t give_up_ns = 0;  // a device that is busy until then is measured only in the first round
};

// The next device that has no two readings that agree, in this round or the next one. Its number is
// the number of devices where none is left.
Measurement After(const Measurement& last, const Engine& engine, int64_t now_ns) {
  const auto find = [&](int first) {
    while (first < engine.device_count() && engine.bandwidth(first).noise <= kNoiseMax) ++first;
    return first;
  };
  int device = find(last.device + 1);
  if (device < engine.device_count()) return {device, last.round, now_ns, now_ns + kPatienceNs};
  device = last.round + 1 < kRounds ? find(0) : engine.device_count();
  const int64_t start_ns = now_ns + (kPauseNs << last.round);
  return {device, last.round + 1, start_ns, start_ns + kPatienceNs};
}

double BusySeconds(const Engine& engine, int device) {
  return engine.Snapshot()[device].busy_seconds;
}

enum class Outcome { kMeasured, kBusy, kLeftOut };

void Measure(const Measurement& now, Engine* engine, inspect::Inspector* inspector,
             const Clock& clock) {
  if (now.device == engine->device_count()) return;
  const int64_t since_ns = clock();
  const double busy_seconds = BusySeconds(*engine, now.device);
  auto outcome = std::make_shared<Outcome>(Outcome::kMeasured);
  auto task = std::make_unique<inspect::Task>();
  task->not_before_ns = std::max(since_ns, now.not_before_ns) + kQuietNs;
  task->cancelled = &never_cancelled;
  task->next = [=, self = task.get(), clock = Clock(clock)](
                   const absl::Status& before) -> absl::StatusOr<inspect::Inquiry> {
    RETURN_IF_ERROR(before);
    const int64_t now_ns = clock();
    const double share = (BusySeconds(*engine, now.device) - busy_seconds) * 1e9 /
                         static_cast<double>(now_ns - since_ns);
    if (share > kQuietShareMax && (now.round > 0 || now_ns < now.give_up_ns)) {
      *outcome = now_ns < now.give_up_ns ? Outcome::kBusy : Outcome::kLeftOut;
      return absl::UnavailableError("the device is busy");
    }
    self->deadline_ns = now_ns + kMeasureNsMax;  // from its turn on
    return BandwidthInquiry(engine->device(now.device).properties().name);
  };
  task->done = [=, clock = Clock(clock)](const absl::StatusOr<std::string>& response) {
    if (*outcome == Outcome::kBusy) return Measure(now, engine, inspector, clock);
    if (*outcome == Outcome::kMeasured) {
      if (response.ok()) SetBandwidthFrom(*response, now.device, engine);
      LogOutcome(*engine, now.device, response.status());
    }
    Measure(After(now, *engine, clock()), engine, inspector, clock);
  };
  const absl::Status status = inspector->Submit(&task);
  if (!status.ok()) LogOutcome(*engine, now.device, status);
}

}  // namespace

void MeasureBandwidths(Engine* engine, inspect::Inspector* inspector, const Clock& clock) {
  Measure({0, 0, clock(), clock() + kPatienceNs}, engine, inspector, clock);
}

}  // namespace warpcall
