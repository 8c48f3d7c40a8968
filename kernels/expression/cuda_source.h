// CUDA C++ for a graph: one kernel that reads its inputs and writes its output, in the shape that
// suits the problem. Nothing of the client's text is in it: names are generated and constants are
// written as their bits. It includes no header, so that NVRTC is done with it in some 20 ms.
//
// Compile it with --fmad=false: a product that is not rounded would be finite where the definition
// of the steps has infinity.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/expression/cuda_shape.h"
#include "kernels/expression/layout.h"
#include "proto/common/data_type.h"

namespace warpcall::expression {

// The entry: takes the inputs in order and the output, all of the data type.
inline constexpr char kCudaKernelName[] = "warpcall_fused";

struct CudaKernel {
  std::string source;
  CudaShape shape;  // its grid: blocks beyond the limit of x go on in y
};

enum class CudaArithmetic : uint8_t {
  // Each step as kernels/expression/arithmetic.h bounds it, sums in float64: any expression.
  kStepwise,
  // Shortcuts within an op's tolerance, for graphs known to stay in range: exp by one instruction,
  // no scale for divisors, row_sum in float32, sums of unrounded products.
  kQuick,
};

struct CudaProblem {
  const Graph& graph;
  const Layout& layout;
  DataType data_type;
  int64_t seed = 0;
  CudaArithmetic arithmetic = CudaArithmetic::kStepwise;
  // The result, a reduction, is written once for each row.
  bool narrow_output = false;
};

// REQUIRES: the output has elements. Inputs and output are aligned to 16 bytes.
CudaKernel CudaKernelFor(const CudaProblem& problem);
// Generates the kernel in another shape that ShapeFor could return for such a problem.
CudaKernel CudaKernelIn(const CudaShape& shape, const CudaProblem& problem);

}  // namespace warpcall::expression
