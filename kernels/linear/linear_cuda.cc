#include "kernels/linear/linear.h"

namespace warpcall {

std::vector<Implementation> LinearCudaRows() {
  return {linear::CublasltRow(),      linear::DotPerOutputRow(),  linear::WgmmaTiledRow(),
          linear::MmaTiledRow(),      linear::RegisterTiledRow(), linear::TritonLinearRow(),
          linear::ChainOfKernelsRow()};
}

}  // namespace warpcall
