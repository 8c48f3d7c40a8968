// A copy from x to y: the work of the test kernels that compute anything.
#pragma once

#include <cstring>

#include "absl/status/status.h"
#include "kernels/plan.h"

namespace warpcall::fault {

// y is as x.
inline absl::Status InferCopy(Problem* problem) {
  problem->outputs.push_back(problem->inputs[0]);
  return absl::OkStatus();
}

inline Work CopyWork(const Problem& problem) {
  return {.bytes = 2 * static_cast<int64_t>(problem.inputs[0].bytes()), .flops = 0};
}

// x to y, both of the same size.
inline absl::Status Copy(const Problem& problem, const Operands& operands, const LaunchContext&) {
  const size_t bytes = problem.outputs[0].bytes();
  if (bytes > 0) std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
  return absl::OkStatus();
}

}  // namespace warpcall::fault
