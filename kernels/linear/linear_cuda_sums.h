// The kernel that makes linear's outputs of sums in the memory of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/linear/linear.h"
#include "kernels/plan.h"

namespace warpcall::linear {

// The finish of sums, as a plan keeps it.
struct SumsFinish {
  DataType data_type;  // shared by the bias and the outputs
  matmul::Activation activation;
  int64_t rows;
  int64_t n;
  uint32_t splits;  // parts of every sum

  // Enqueues the kernel. Each output is the sum of its parts, in their order so that results repeat
  // bit by bit, with bias and activation, rounded once. `partial` is float32 [splits][rows][n]; a
  // single part may lie where the outputs will. REQUIRES: there are outputs.
  absl::Status Enqueue(const float* partial, const Operands& operands,
                       const LaunchContext& context) const;
};

// Returns the finish of a problem's sums, each in `splits` parts.
SumsFinish FinishOfSums(const Problem& problem, uint32_t splits);

// Plans a problem without sums: writes activation(bias), if there is an output.
PlanPtr PlanWithoutSums(const Problem& problem, const PlanContext& context);

}  // namespace warpcall::linear
