// CUDA C++ for a graph: one kernel that reads its inputs and writes its output, in the shape that
// suits the problem. Nothing of the client's text is in it: names are generated and constants are
// written as their bits. It includes no header, so that NVRTC is done with it in some 20 ms.
//
// Compile it with --fmad=false: a product that is not rounded would be finite where the definition
// of the steps has infinity.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/common/data_type.h"
#include "kernels/expression/layout.h"

namespace warpcall::expression {

// The entry: takes the inputs in order and the output, all of the data type.
inline constexpr char kCudaKernelName[] = "warpcall_fused";

struct CudaKernel {
  enum class Form : uint8_t {
    kElements,   // a thread for each vector of elements
    kKeptRows,   // a warp or a block for each row, which stays in registers
    kReadAgain,  // a block for each row, which is read once for each pass
  };

  std::string source;
  Form form = Form::kElements;
  int threads = 0;  // of a block
  int64_t blocks = 0;
};

struct CudaProblem {
  const Graph& graph;
  const Layout& layout;
  DataType data_type;
  int64_t seed = 0;
};

// REQUIRES: the output has elements. Inputs and output are aligned to 16 bytes.
CudaKernel CudaKernelFor(const CudaProblem& problem);

}  // namespace warpcall::expression
