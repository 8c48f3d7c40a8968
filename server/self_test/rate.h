// What work costs a row on the machine at hand, coarsely: so that its first jobs are predicted.
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
  // What bytes cost where none are copied and FLOPs take the time.
  double memory_bytes_per_ns = 10;
};

// What the smaller run took is fixed. The rest is the bytes'; where FLOPs grow faster it is theirs,
// and bytes cost what copying them did. The runs may be one and the same.
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
// smallest did, each a few times for the best. What `run` refuses ends it.
absl::StatusOr<ServiceRate> MeasureRate(
    const RatePlan& plan, absl::FunctionRef<absl::StatusOr<StreamTimes>(const Problem&)> run);

}  // namespace warpcall::self_test
