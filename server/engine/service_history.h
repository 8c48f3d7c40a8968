// What jobs of each row and size took, to predict what the next will take.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace warpcall {

// Thread-safe and lock-free; threads that note the same size at one instant may lose a sample.
class ServiceHistory {
 public:
  // Rows have ids 0 .. rows - 1.
  explicit ServiceHistory(int rows) : cells_(static_cast<size_t>(rows) * kSizes) {}

  struct Prediction {
    int64_t ns;
    bool measured;  // by several jobs of this row and size; otherwise an optimistic guess
  };
  Prediction Predict(int row, const Work& work) const;

  // A job of this kind kept its lane for `ns`.
  void Note(int row, const Work& work, int64_t ns);
  // The prediction kept a job out, so that nothing was learned: it is shortened a little, or one
  // slow spell would keep such jobs out for good.
  void Doubt(int row, const Work& work);

 private:
  // Sizes are told apart by powers of two of bytes and FLOPs together.
  static constexpr int kSizes = 64;

  struct Cell {
    std::atomic<int64_t> mean_ns{0};
    std::atomic<int> samples{0};
  };

  size_t IndexOf(int row, const Work& work) const;

  std::vector<Cell> cells_;
};

}  // namespace warpcall
