// What a device's arithmetic gives at best in one type: the ceiling that kernels bound by it are
// measured by.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/multiply_adds.h"
#include "kernels/op.h"
#include "server/inspect/fastest_rows.h"

namespace warpcall::inspect {

// Of multiply-adds and nothing else: on a CPU in float32 chains of them in registers, by as many
// threads as the device has cores; elsewhere what `source` has. Where that has nothing, the fastest
// rows of "matmul", with matrices so large that neither their memory nor the launch counts. Used by
// the stream's thread; destroyed before the stream.
class FlopsCeiling {
 public:
  // `source` may be null. NOT_FOUND where no fast row multiplies matrices of the type, either.
  static absl::StatusOr<std::unique_ptr<FlopsCeiling>> Create(const FastestRows::Site& site,
                                                              Arithmetic arithmetic,
                                                              const MultiplyAddsSource& source);

  // Half a millisecond of multiply-adds on a CPU, a launch of the source's, or a product.
  absl::Status Sample();
  // By a fast sample (p10), since whatever else the machine does only adds to it; 0 before there is
  // one.
  double flops_per_second() const;
  int64_t samples() const;
  int64_t spent_ns() const;

 private:
  // Whether `source` has multiply-adds for the device.
  static absl::StatusOr<bool> Take(const MultiplyAddsSource& source, Arithmetic arithmetic,
                                   const DeviceProperties& device, MultiplyAdds* taken);
  absl::Status SampleThreads();
  absl::Status SampleDevice();
  // `flops` that took so long.
  void Note(int64_t flops, int64_t took_ns);

  // Of these, one is set.
  std::unique_ptr<FastestRows> products_;
  std::unique_ptr<cpu::ThreadPool> pool_;
  MultiplyAdds multiply_adds_;
  const Operands no_operands_ = {};
  Stream* stream_ = nullptr;
  Clock clock_ = MonotonicNs;
  std::vector<double> ns_per_flop_;
  int64_t multiply_adds_ns_ = 0;
};

// Whether arithmetic may bound a problem: per byte it needs more of it than any kernel that only
// looks at each element.
bool ArithmeticMayBound(const Work& work);

}  // namespace warpcall::inspect
