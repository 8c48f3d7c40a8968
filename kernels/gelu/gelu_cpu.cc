#include "kernels/gelu/gelu.h"

namespace warpcall {

std::vector<Implementation> GeluCpuRows() {
  return {gelu::SimdFusedRow(), gelu::OnednnEltwiseRow(), gelu::ChainOfLoopsRow(),
          gelu::Float64Row()};
}

}  // namespace warpcall
