#include "kernels/fused/fused.h"

namespace warpcall {

std::vector<Implementation> FusedCpuRows() { return {fused::Float64Row()}; }

}  // namespace warpcall
