#include "kernels/gelu/gelu.h"

namespace warpcall {

std::vector<Implementation> GeluCudaRows() {
  return {gelu::VectorizedRow(), gelu::TritonGeluRow(), gelu::CompiledGeluRow(),
          gelu::CudnnPointwiseRow(), gelu::ChainOfKernelsRow()};
}

}  // namespace warpcall
