#include "server/transport/bandwidths.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "server/log.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

// The first requests after the start come before the measurement.
constexpr int64_t kDelayNs = 2'000'000'000;

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

// Measures the devices from `device` on, one after the other.
void MeasureFrom(int device, int64_t not_before_ns, Engine* engine, inspect::Inspector* inspector) {
  if (device == engine->device_count()) return;
  const std::string name = engine->device(device).properties().name;
  auto task = std::make_unique<inspect::Task>();
  task->not_before_ns = not_before_ns;
  task->cancelled = &never_cancelled;
  task->prepare = [name] { return BandwidthInquiry(name); };
  task->done = [=](const absl::StatusOr<std::string>& response) {
    if (response.ok()) NoteBandwidthOf(*response, device, engine);
    const bool unknown = response.ok() && engine->bandwidth(device) == 0;
    LogOutcome(name, unknown ? absl::UnknownError("see above") : response.status(),
               engine->bandwidth(device));
    MeasureFrom(device + 1, 0, engine, inspector);
  };
  const absl::Status status = inspector->Submit(&task);
  if (!status.ok()) LogOutcome(name, status, 0);
}

}  // namespace

void MeasureBandwidths(Engine* engine, inspect::Inspector* inspector) {
  MeasureFrom(0, MonotonicNs() + kDelayNs, engine, inspector);
}

}  // namespace warpcall
