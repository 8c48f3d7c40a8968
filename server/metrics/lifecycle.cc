#include "server/metrics/lifecycle.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/common/check.h"
#include "server/engine/clock.h"

namespace warpcall {

Lifecycle::Lifecycle(BuildInfo build, std::function<int64_t()> log_lines_dropped)
    : build_(std::move(build)),
      log_lines_dropped_(std::move(log_lines_dropped)),
      start_ns_(MonotonicNs()) {}

void Lifecycle::SetStep(std::string step) {
  const absl::MutexLock lock(&mutex_);
  step_ = std::move(step);
}

void Lifecycle::SetTesting(std::string testing) {
  const absl::MutexLock lock(&mutex_);
  testing_ = std::move(testing);
}

void Lifecycle::SetAnswers(Answers answers) {
  const absl::MutexLock lock(&mutex_);
  answers_ = std::move(answers);
}

double Lifecycle::seconds_since_start() const {
  return static_cast<double>(MonotonicNs() - start_ns_) / 1e9;
}

std::string Lifecycle::Scrape(MetricsFormat format) const {
  std::function<std::string(MetricsFormat)> scrape;
  {
    const absl::MutexLock lock(&mutex_);
    scrape = answers_.scrape;
  }
  return scrape != nullptr ? scrape(format)
                           : ScrapeWithoutDevices({phase(), build_, log_lines_dropped_()}, format);
}

ServerStatus Lifecycle::Status() const {
  const absl::StatusOr<std::string> ready = Ready();
  ServerStatus status;
  status.build = build_;
  status.phase = phase();
  status.is_ready = ready.ok();
  status.readiness = ready.ok() ? *ready : std::string(ready.status().message());
  status.uptime_seconds = seconds_since_start();
  status.unix_ns = absl::GetCurrentTimeNanos();
  std::function<void(ServerStatus*)> describe;
  {
    const absl::MutexLock lock(&mutex_);
    describe = answers_.describe;
  }
  if (describe != nullptr) describe(&status);
  return status;
}

absl::StatusOr<std::string> Lifecycle::Ready() const {
  std::function<absl::StatusOr<std::string>()> ready;
  std::string starting = "starting";
  {
    const absl::MutexLock lock(&mutex_);
    ready = answers_.ready;
    for (const std::string& what : {step_, testing_})
      if (!what.empty()) absl::StrAppend(&starting, starting == "starting" ? ": " : "; ", what);
  }
  switch (phase()) {
    case ServerPhase::kStarting:
      return absl::UnavailableError(starting);
    case ServerPhase::kLameDuck:
      return absl::UnavailableError("stopping: still serving, for load balancers to notice");
    case ServerPhase::kDraining:
      return absl::UnavailableError("stopping: finishing what was accepted");
    case ServerPhase::kServing:
      break;
  }
  WARPCALL_CHECK(ready != nullptr);
  return ready();
}

}  // namespace warpcall
