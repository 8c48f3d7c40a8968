// An op's problem as an expression over its operands, for generated CUDA: each op that has one says
// it in one place.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "kernels/expression/cuda_source.h"
#include "kernels/expression/graph.h"
#include "kernels/op.h"

namespace warpcall::expression {

struct CudaTask {
  Graph graph;
  absl::InlinedVector<TensorSpec, 2> inputs;  // element counts as the operands', dims maybe not
  int64_t seed = 0;
  CudaArithmetic arithmetic = CudaArithmetic::kStepwise;
  std::string text = {};  // as a client wrote it; empty: the op's own formula
};

}  // namespace warpcall::expression
