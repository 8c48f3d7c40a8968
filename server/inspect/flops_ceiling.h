// What a device's arithmetic gives at best in one type: the ceiling that kernels bound by it are
// measured by.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "server/inspect/fastest_rows.h"

namespace warpcall::inspect {

// On a CPU in float32: chains of multiply-adds in registers, by as many threads as the device has
// cores. Otherwise what has instructions of its own for products: the fastest rows of "matmul",
// with matrices so large that neither their memory nor the launch counts. Used by the stream's
// thread; destroyed before the stream.
class FlopsCeiling {
 public:
  // NOT_FOUND where no fast row multiplies matrices of the type.
  static absl::StatusOr<std::unique_ptr<FlopsCeiling>> Create(const FastestRows::Site& site,
                                                              DataType type);

  // Half a millisecond of multiply-adds, or a product.
  absl::Status Sample();
  // By a fast sample (p10), since whatever else the machine does only adds to it; 0 before there is
  // one.
  double flops_per_second() const;
  int64_t samples() const;
  int64_t spent_ns() const;

 private:
  std::unique_ptr<FastestRows> products_;  // null: multiply-adds
  std::unique_ptr<cpu::ThreadPool> pool_;
  std::vector<double> ns_per_flop_;
  int64_t multiply_adds_ns_ = 0;
};

// Whether arithmetic may bound a problem: per byte it needs more of it than any kernel that only
// looks at each element.
bool ArithmeticMayBound(const Work& work);

}  // namespace warpcall::inspect
