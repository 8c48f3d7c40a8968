#include "kernels/linear/linear.h"

namespace warpcall {

std::vector<Implementation> LinearCudaRows() {
  return {linear::CublasltRow(), linear::MmaTiledRow(), linear::RegisterTiledRow(),
          linear::ChainOfKernelsRow()};
}

}  // namespace warpcall
