#include "kernels/linear/linear.h"

namespace warpcall {

std::vector<Implementation> LinearCpuRows() {
  return {linear::OnednnRow(), linear::SimdTiledRow(), linear::ChainOfLoopsRow(),
          linear::Float64Row()};
}

}  // namespace warpcall
