#include "server/transport/load_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

using xds::data::orca::v3::OrcaLoadReport;

// Balancers look at reports once a second or so; a younger one tells them nothing more.
constexpr int64_t kReportNs = 100'000'000;
constexpr int64_t kWindowNs = 1'000'000'000;

double Share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
}

}  // namespace

OrcaLoadReport MakeLoadReport(const LoadSample& before, const LoadSample& after) {
  OrcaLoadReport report;
  const double seconds = static_cast<double>(after.time_ns - before.time_ns) / 1e9;
  if (seconds > 0) {
    report.set_rps_fractional(static_cast<double>(after.replies - before.replies) / seconds);
    report.set_eps(static_cast<double>(after.errors - before.errors) / seconds);
  }
  double busy = 0;
  int counted = 0;
  for (size_t i = 0; i < after.devices.size(); ++i) {
    const LoadSample::OfDevice& device = after.devices[i];
    const double share = Share(device.busy_seconds - before.devices[i].busy_seconds, seconds);
    (*report.mutable_utilization())[device.name] = share;
    (*report.mutable_named_metrics())[absl::StrCat("queue_seconds.", device.name)] =
        device.work_seconds;
    report.set_mem_utilization(std::max(report.mem_utilization(), device.memory_used));
    if (!device.counts || !device.healthy) continue;
    busy += share;
    ++counted;
  }
  report.set_application_utilization(counted == 0 ? 1 : busy / counted);
  return report;
}

bool IsServersError(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

LoadReporter::LoadReporter(const Engine* engine, Clock clock)
    : engine_(*engine), clock_(std::move(clock)) {
  samples_.push_back(Sample());
}

void LoadReporter::Report(absl::StatusCode code, grpc::CallbackServerContext* context) {
  replies_.fetch_add(1, std::memory_order_relaxed);
  if (IsServersError(code)) errors_.fetch_add(1, std::memory_order_relaxed);
  if (code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kPermissionDenied)
    return;
  context->AddTrailingMetadata(kLoadReportKey, Encoded());
}

LoadSample LoadReporter::Sample() const {
  LoadSample sample{.time_ns = clock_(), .replies = replies_.load(), .errors = errors_.load()};
  const std::vector<DeviceSnapshot> devices = engine_.Snapshot();
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceProperties& properties = engine_.device(static_cast<int>(i)).properties();
    const DeviceSnapshot& device = devices[i];
    sample.devices.push_back(
        {.name = properties.name,
         .counts = properties.kind == engine_.device(0).properties().kind,
         .healthy = device.healthy,
         .busy_seconds = device.busy_seconds,
         .work_seconds = device.work_seconds,
         .memory_used = Share(static_cast<double>(device.memory_used_bytes),
                              static_cast<double>(device.memory_total_bytes))});
  }
  return sample;
}

std::string LoadReporter::Encoded() {
  absl::MutexLock lock(&mutex_);
  const int64_t now_ns = clock_();
  if (!encoded_.empty() && now_ns - samples_.back().time_ns < kReportNs) return encoded_;
  samples_.push_back(Sample());
  while (samples_.size() > 2 && now_ns - samples_[1].time_ns >= kWindowNs) samples_.pop_front();
  encoded_ = MakeLoadReport(samples_.front(), samples_.back()).SerializeAsString();
  return encoded_;
}

}  // namespace warpcall
