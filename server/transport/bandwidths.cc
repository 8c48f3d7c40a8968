#include "server/transport/bandwidths.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "server/log.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

// Who starts a server wants to use it first: the start of another process on a GPU alone makes 4
// KiB of gelu take 38 to 82 us instead of 14. So a device is measured when it has done little for a
// while; one that is never idle, after some time.
constexpr int64_t kQuietNs = 2'000'000'000;
constexpr double kQuietShareMax = 0.01;
constexpr int64_t kPatienceNs = 30'000'000'000;
// The measurement takes under 5 s. Callers' inspections wait for a process that hangs.
constexpr int64_t kMeasureNsMax = 30'000'000'000;

// The measurement has no caller that could cancel it.
const std::atomic<bool> never_cancelled{false};

void LogOutcome(const std::string& device, const absl::Status& status, double bytes_per_second) {
  if (status.ok())
    Log(LogLevel::kInfo, "copy bandwidth measured",
        {{"device", device}, {"bytes_per_second", bytes_per_second}});
  else if (!absl::IsUnavailable(status))  // the server stops, or the device is lost
    Log(LogLevel::kWarning, "copy bandwidth not measured",
        {{"device", device}, {"error", status.message()}});
}

struct Measurement {
  int device;          // this one, then those after it
  int64_t give_up_ns;  // measured then, quiet or not
};

double BusySeconds(const Engine& engine, int device) {
  return engine.Snapshot()[device].busy_seconds;
}

void Measure(Measurement next, Engine* engine, inspect::Inspector* inspector, const Clock& clock) {
  if (next.device == engine->device_count()) return;
  const std::string name = engine->device(next.device).properties().name;
  const int64_t since_ns = clock();
  const double busy_seconds = BusySeconds(*engine, next.device);
  auto was_busy = std::make_shared<bool>(false);
  auto task = std::make_unique<inspect::Task>();
  task->not_before_ns = since_ns + kQuietNs;
  task->cancelled = &never_cancelled;
  task->prepare = [=, self = task.get(),
                   clock = Clock(clock)]() -> absl::StatusOr<inspect::Inquiry> {
    const int64_t now_ns = clock();
    const double share = (BusySeconds(*engine, next.device) - busy_seconds) * 1e9 /
                         static_cast<double>(now_ns - since_ns);
    *was_busy = share > kQuietShareMax && now_ns < next.give_up_ns;
    if (*was_busy) return absl::UnavailableError("the device is busy");
    self->deadline_ns = now_ns + kMeasureNsMax;  // from its turn on
    return BandwidthInquiry(name);
  };
  task->done = [=, clock = Clock(clock)](const absl::StatusOr<std::string>& response) {
    if (*was_busy) return Measure(next, engine, inspector, clock);
    if (response.ok()) NoteBandwidthOf(*response, next.device, engine);
    const bool unknown = response.ok() && engine->bandwidth(next.device) == 0;
    LogOutcome(name, unknown ? absl::UnknownError("see above") : response.status(),
               engine->bandwidth(next.device));
    Measure({next.device + 1, clock() + kPatienceNs}, engine, inspector, clock);
  };
  const absl::Status status = inspector->Submit(&task);
  if (!status.ok()) LogOutcome(name, status, 0);
}

}  // namespace

void MeasureBandwidths(Engine* engine, inspect::Inspector* inspector, const Clock& clock) {
  Measure({0, clock() + kPatienceNs}, engine, inspector, clock);
}

}  // namespace warpcall
