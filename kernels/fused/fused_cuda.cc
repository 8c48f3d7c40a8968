#include "kernels/fused/fused.h"

namespace warpcall {

std::vector<Implementation> FusedCudaRows() {
  return {fused::CompiledExpressionRow(), fused::ChainOfKernelsRow()};
}

}  // namespace warpcall
