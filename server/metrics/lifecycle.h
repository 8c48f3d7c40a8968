// The phases of a server's life, as its metrics port tells them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/prometheus_sink.h"

namespace warpcall {

// Thread-safe.
class Lifecycle {
 public:
  // The answers of the metrics port once devices are open.
  struct Answers {
    std::function<std::string(MetricsFormat)> scrape;
    std::function<absl::StatusOr<std::string>()> ready;
    std::function<void(ServerStatus*)> describe = nullptr;
  };

  // Begins in kStarting.
  Lifecycle(BuildInfo build, std::function<int64_t()> log_lines_dropped);

  // Names what the start does now ("opening devices"), and what runs beside it ("testing layernorm
  // (31 of 48)"). Empty: nothing.
  void SetStep(std::string step) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetTesting(std::string testing) ABSL_LOCKS_EXCLUDED(mutex_);
  // REQUIRES: what `answers` use outlives the calls of Scrape and Ready.
  void SetAnswers(Answers answers) ABSL_LOCKS_EXCLUDED(mutex_);
  void Enter(ServerPhase phase) { phase_.store(phase); }

  ServerPhase phase() const { return phase_.load(); }
  double seconds_since_start() const;

  // HttpServer's `scrape`, `ready` and `status`. Before SetAnswers, they have what every server
  // has.
  std::string Scrape(MetricsFormat format) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> Ready() const ABSL_LOCKS_EXCLUDED(mutex_);
  ServerStatus Status() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const BuildInfo build_;
  const std::function<int64_t()> log_lines_dropped_;
  const int64_t start_ns_;
  std::atomic<ServerPhase> phase_{ServerPhase::kStarting};
  mutable absl::Mutex mutex_;
  std::string step_ ABSL_GUARDED_BY(mutex_);
  std::string testing_ ABSL_GUARDED_BY(mutex_);
  Answers answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
