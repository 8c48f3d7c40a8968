// The best speed of a device's arithmetic in one type: the ceiling against which kernels bound by
// it are measured.
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

// Times multiply-adds and nothing else. On a CPU in float32: chains of them in registers, on as
// many threads as the device has cores. Elsewhere: those of `source`. If it has none: the fastest
// rows of "matmul", with matrices so large that neither memory nor the launch counts. Used by the
// stream's thread; destroyed before the stream.
class FlopsCeiling {
 public:
  // `source` may be null. NOT_FOUND if no fast row multiplies matrices of the type, either.
  static absl::StatusOr<std::unique_ptr<FlopsCeiling>> Create(const FastestRows::Site& site,
                                                              Arithmetic arithmetic,
                                                              const MultiplyAddsSource& source);

  // Runs half a millisecond of multiply-adds on a CPU, a launch of the source's, or a product.
  absl::Status Sample();
  // Drops all samples but those of products; their time still counts as spent.
  void Restart() { ns_per_flop_.clear(); }
  // Taken from a fast sample (p10), since other work on the machine only adds time; 0 before the
  // first sample.
  double flops_per_second() const;
  int64_t samples() const;
  int64_t spent_ns() const;

 private:
  // Stores the multiply-adds of `source` for the device. False if there are none.
  static absl::StatusOr<bool> Take(const MultiplyAddsSource& source, Arithmetic arithmetic,
                                   const DeviceProperties& device, MultiplyAdds* taken);
  absl::Status SampleThreads();
  absl::Status SampleDevice();
  // Adds a sample: `flops` in `took_ns`.
  void Record(int64_t flops, int64_t took_ns);

  // One of these is set.
  std::unique_ptr<FastestRows> products_;
  std::unique_ptr<cpu::ThreadPool> pool_;
  MultiplyAdds multiply_adds_;
  const Operands no_operands_ = {};
  Stream* stream_ = nullptr;
  Clock clock_ = MonotonicNs;
  std::vector<double> ns_per_flop_;
  int64_t multiply_adds_ns_ = 0;
};

// True if arithmetic may bound a problem: it needs more FLOPs per byte than any kernel that only
// looks at each element.
bool ArithmeticMayBound(const Work& work);

}  // namespace warpcall::inspect
