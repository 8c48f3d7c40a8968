#include "kernels/fused/fused.h"

namespace warpcall {

std::vector<Implementation> FusedCpuRows() {
  return {fused::BlocksInCacheRow(), fused::ChainOfLoopsRow(), fused::Float64Row()};
}

}  // namespace warpcall
