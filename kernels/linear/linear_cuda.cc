#include "kernels/linear/linear.h"

namespace warpcall {

std::vector<Implementation> LinearCudaRows() {
  return {linear::WgmmaTiledRow(),    linear::CublasltRow(),      linear::DotPerOutputRow(),
          linear::MmaTiledRow(),      linear::RegisterTiledRow(), linear::TritonLinearRow(),
          linear::ChainOfKernelsRow()};
}

}  // namespace warpcall
