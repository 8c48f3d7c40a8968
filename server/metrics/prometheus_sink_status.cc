// PrometheusSink's counts as people read them: see ServerStatus.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "server/metrics/prometheus_sink.h"

namespace warpcall {

std::string PrometheusSink::FirstInOrder(const Kernel& kernel) const {
  for (const DeviceLabel& device : options_.devices) {
    for (const int id : kernel.rows) {
      const Row& row = registry_.rows()[static_cast<size_t>(id)];
      if (row.implementation.device_kind != device.kind || !row.availability.is_offered()) continue;
      const auto serves = [&](DataType type) { return Registry::WhyNotAuto(row, type) == nullptr; };
      if (absl::c_any_of(row.implementation.data_types, serves))
        return FamilyName(row.implementation.family);
    }
  }
  return "";
}

void PrometheusSink::KeepInspection(const InspectionEnd& end) {
  RecentInspection kept;
  kept.unix_ns = absl::GetCurrentTimeNanos();
  kept.method = InspectionName(end.kind);
  if (end.kernel >= 0 && end.kernel < kernel_count_)
    kept.kernel = registry_.kernels()[static_cast<size_t>(end.kernel)].op->name;
  if (end.device >= 0 && static_cast<size_t>(end.device) < options_.devices.size())
    kept.device = options_.devices[static_cast<size_t>(end.device)].name;
  kept.push = CutText(end.push);
  kept.principal = CutText(end.principal);
  // A push that was judged ends with OK whatever the verdict.
  kept.outcome = end.verdict.empty() ? absl::StatusCodeToString(end.code) : CutText(end.verdict);
  kept.seconds = static_cast<double>(end.total_ns) / 1e9;
  const absl::MutexLock lock(&inspections_mutex_);
  inspections_.push_front(std::move(kept));
  if (inspections_.size() > kStatusInspectionsMax) inspections_.pop_back();
}

void PrometheusSink::Describe(ServerStatus* status) const {
  const std::vector<DeviceSnapshot> snapshots = options_.snapshot_devices();
  for (size_t i = 0; i < options_.devices.size(); ++i)
    status->devices.push_back(
        {options_.devices[i].name, true, i < snapshots.size() ? snapshots[i] : DeviceSnapshot()});
  for (const std::string& name : options_.devices_left_out)
    status->devices.push_back({name, false, DeviceSnapshot()});
  const TrafficHistory::Window window = traffic_->LastMinute();
  status->window_seconds = window.seconds;
  const std::vector<AutoStatus> choices = CountAutoChoices();
  for (size_t i = 0; i < window.counts.size(); ++i) {
    KernelStatus kernel;
    kernel.requests = CountOf(window.since_start[i].answered);
    kernel.last_minute = window.counts[i];
    if (i < choices.size()) {
      kernel.name = registry_.kernels()[i].op->name;
      kernel.auto_choice = choices[i];
    } else if (kernel.requests == 0) {
      continue;  // every request named a kernel that exists
    }
    status->kernels.push_back(std::move(kernel));
  }
  std::stable_sort(status->kernels.begin(), status->kernels.end(),
                   [](const KernelStatus& a, const KernelStatus& b) {
                     return CountOf(a.last_minute.answered) > CountOf(b.last_minute.answered);
                   });
  const absl::MutexLock lock(&inspections_mutex_);
  status->inspections.assign(inspections_.begin(), inspections_.end());
}

}  // namespace warpcall
