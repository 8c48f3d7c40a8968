// Measures an implementation's cost on this machine, coarsely, to predict its first jobs.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/check/cases.h"
#include "kernels/op.h"
#include "server/engine/service_history.h"
#include "server/runtime/device.h"

namespace warpcall::self_test {

struct TimedRun {
  Work work;
  StreamTimes times;
};

struct RateKind {
  // FLOPs grow faster than bytes from one size to the next, as a matrix product's.
  bool by_flops = false;
  // Memory rate to assume if nothing is copied and FLOPs take the time.
  double memory_bytes_per_ns = 10;
};

// The smaller run's time is the fixed cost. Bytes explain the rest, unless FLOPs grow faster: then
// FLOPs do, and bytes cost as much as copying them. The runs may be one and the same.
ServiceRate RateOf(const TimedRun& small, const TimedRun& large, const RateKind& kind);

struct RatePlan {
  const Op* op = nullptr;
  std::vector<Dims> (*sized)(int64_t elements) = nullptr;  // OpCases'
  DataType data_type = DataType::kFloat32;
  int64_t elements_max = 0;
  int64_t elements_step = 4;  // from one problem to the next, times
  double memory_bytes_per_ns = 10;
};

// Runs larger and larger problems until one keeps the kernel busy for a millisecond more than the
// smallest did. Runs each a few times for the best. Stops at a problem that `run` refuses.
absl::StatusOr<ServiceRate> MeasureRate(
    const RatePlan& plan, absl::FunctionRef<absl::StatusOr<StreamTimes>(const Problem&)> run);

}  // namespace warpcall::self_test
