#include "kernels/matmul/matmul.h"

namespace warpcall {

std::vector<Implementation> MatmulCpuRows() {
  return {matmul::OnednnRow(), matmul::SimdTiledRow(), matmul::OneDotPerOutputRow(),
          matmul::Float64Row()};
}

}  // namespace warpcall
