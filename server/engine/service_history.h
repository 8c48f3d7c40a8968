// What jobs of each row and size took, to predict what the next will take.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace warpcall {

// What work costs a row, told by its bytes and FLOPs.
struct ServiceRate {
  double fixed_ns = 0;
  double bytes_per_ns = 1;  // > 0
  double flops_per_ns = 1;  // > 0
};

// Thread-safe and lock-free; threads that note the same size at one instant may lose a sample.
class ServiceHistory {
 public:
  // Rows have ids 0 .. rows - 1.
  explicit ServiceHistory(int rows)
      : cells_(static_cast<size_t>(rows) * kSizes), rates_(static_cast<size_t>(rows)) {}

  // How much a prediction is worth.
  enum class Basis : uint8_t {
    kGuess,     // nothing of the row was measured: an optimistic guess
    kRate,      // the row's rate on this machine, from work of other sizes
    kMeasured,  // several jobs of this row and size
  };
  struct Prediction {
    int64_t ns;
    // For those who would harm others by reckoning with too little, or refuse what they should not
    // by reckoning with too much: far more and far less, unless measured.
    int64_t ns_at_most;
    int64_t ns_at_least;
    Basis basis;
    bool measured() const { return basis == Basis::kMeasured; }
  };
  Prediction Predict(int row, const Work& work) const;

  // What trials on this machine have shown, before the first job.
  void SetRate(int row, const ServiceRate& rate);

  // A job of this kind kept its lane for `ns`.
  void Note(int row, const Work& work, int64_t ns);
  // A job of this kind was stopped after `ns`: it would have taken longer.
  void NoteAtLeast(int row, const Work& work, int64_t ns);
  // The prediction kept a job out, so that nothing was learned: it is shortened a little, or one
  // slow spell would keep such jobs out for good.
  void LowerPrediction(int row, const Work& work);

 private:
  // Sizes are told apart by powers of two of bytes and FLOPs together.
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
    // How many times as long as by the rates above the row's jobs took; 0: no job has told.
    std::atomic<double> slowness{0};
  };

  size_t IndexOf(int row, const Work& work) const;
  void LearnRate(int row, const Work& work, int64_t ns);

  std::vector<Cell> cells_;
  std::vector<Rate> rates_;
};

}  // namespace warpcall
