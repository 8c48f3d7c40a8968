// Records the time that jobs of each implementation and size took, to predict the next ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace warpcall {

// An implementation's cost, derived from the bytes and FLOPs of the work.
struct ServiceRate {
  double fixed_ns = 0;
  double bytes_per_ns = 1;  // > 0
  double flops_per_ns = 1;  // > 0
};

// The part of a job's work that takes time.
struct TimedWork {
  Work work;                   // without the bytes that stay on the device
  bool has_residents = false;  // then the job tells nothing about jobs whose bytes all travel
};

// Thread-safe and lock-free. Threads that record the same size at one instant may lose a sample.
class ServiceHistory {
 public:
  // Rows have ids 0 .. rows - 1.
  explicit ServiceHistory(int rows)
      : cells_(static_cast<size_t>(rows) * 2 * kSizes), rates_(static_cast<size_t>(rows)) {}

  // Evidence behind a prediction.
  enum class Basis : uint8_t {
    kGuess,     // no measurement of the implementation: an optimistic guess
    kRate,      // the implementation's rate on this machine, from work of other sizes
    kMeasured,  // several jobs of this implementation and size
  };
  struct Prediction {
    int64_t ns;
    // Bounds for callers that would delay other jobs by an underestimate, or refuse a good job by
    // an overestimate. Far from `ns` unless measured.
    int64_t ns_at_most;
    int64_t ns_at_least;
    Basis basis;
    bool measured() const { return basis == Basis::kMeasured; }
  };
  Prediction Predict(int row, const TimedWork& timed) const;
  Prediction Predict(int row, const Work& work) const { return Predict(row, TimedWork{work}); }

  // Sets the rate that trials on this machine have shown, before the first job.
  void SetRate(int row, const ServiceRate& rate);

  // Records that such a job held its lane for `ns`.
  void Record(int row, const TimedWork& timed, int64_t ns);
  // Records that such a job was stopped after `ns`: it would have taken longer.
  void RecordAtLeast(int row, const TimedWork& timed, int64_t ns);
  // Lowers the prediction a little after it has kept a job out. Nothing was learned from that job,
  // and one slow spell must not keep such jobs out for good.
  void LowerPrediction(int row, const TimedWork& timed);

 private:
  // Sizes fall into classes by powers of two of bytes and FLOPs together.
  static constexpr int kSizes = 64;

  struct Cell {
    std::atomic<int64_t> mean_ns{0};
    std::atomic<int> samples{0};
  };

  struct Rate {
    std::atomic<bool> set{false};
    std::atomic<double> fixed_ns{0};
    std::atomic<double> bytes_per_ns{1};
    std::atomic<double> flops_per_ns{1};
    // Factor by which the row's jobs took longer than the rates above say; 0: no job has shown it.
    std::atomic<double> slowness{0};
  };

  size_t IndexOf(int row, const TimedWork& timed) const;
  void LearnRate(int row, const Work& work, int64_t ns);

  std::vector<Cell> cells_;
  std::vector<Rate> rates_;
};

}  // namespace warpcall
