// Outcomes and times of the requests of a load run.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/load/latency_histogram.h"
#include "warpcall/client.h"

namespace warpcall::cli {

// One thread adds; any thread may read meanwhile.
class LoadCounter {
 public:
  void Add(int64_t value) { value_.store(Get() + value, std::memory_order_relaxed); }
  int64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

struct LoadPhase {
  const char* name;
  int64_t client::Timing::*duration_ns;
};
// The server's phases, in order; the last one contains the others.
inline constexpr LoadPhase kLoadPhases[] = {
    {"queue", &client::Timing::queue_ns}, {"copy_in", &client::Timing::copy_in_ns},
    {"h2d", &client::Timing::h2d_ns},     {"kernel", &client::Timing::kernel_ns},
    {"d2h", &client::Timing::d2h_ns},     {"total", &client::Timing::total_ns}};

// When a request was planned, sent and done; nanoseconds of one clock.
struct LoadTimes {
  int64_t planned_ns = 0;  // without a plan: sent_ns
  int64_t sent_ns = 0;
  int64_t done_ns = 0;
};

// Statistics of one entry's calls in one worker, or of several such merged; 190 KiB. Lock-free: one
// thread records, and other threads may read the histograms and counters meanwhile.
class LoadStats {
 public:
  // The number of values of absl::StatusCode, OK included.
  static constexpr int kCodeCount = 17;

  void Record(const LoadTimes& times, const client::Call& call,
              const absl::StatusOr<client::Result>& result);
  // REQUIRES: nobody records into `other` any more.
  void Merge(const LoadStats& other);

  int64_t Count(absl::StatusCode code) const { return codes_[static_cast<size_t>(code)].Get(); }
  // Message of the first request that ended with `code`.
  const std::string& Message(absl::StatusCode code) const {
    return messages_[static_cast<size_t>(code)];
  }
  int64_t Sent() const;
  int64_t Failed() const { return Sent() - Count(absl::StatusCode::kOk); }

  // Times from the planned time to the answer, for OK requests and for the others.
  const LatencyHistogram& latency() const { return latency_; }
  const LatencyHistogram& failed_latency() const { return failed_latency_; }
  // Times from the planned time to the sending, for all.
  const LatencyHistogram& lateness() const { return lateness_; }
  // A phase of OK requests, by its index in kLoadPhases.
  const LatencyHistogram& phase(size_t index) const { return phases_[index]; }
  // Tensor data of OK requests.
  int64_t input_bytes() const { return input_bytes_.Get(); }
  int64_t output_bytes() const { return output_bytes_.Get(); }
  // Attempts after the first, of OK requests.
  int64_t retries() const { return retries_.Get(); }

 private:
  void RecordOk(const client::Call& call, const client::Result& result);

  std::array<LoadCounter, kCodeCount> codes_;
  std::array<std::string, kCodeCount> messages_;
  LatencyHistogram latency_;
  LatencyHistogram failed_latency_;
  LatencyHistogram lateness_;
  std::array<LatencyHistogram, std::size(kLoadPhases)> phases_;
  LoadCounter input_bytes_;
  LoadCounter output_bytes_;
  LoadCounter retries_;
};

}  // namespace warpcall::cli
