#include "kernels/matmul/matmul.h"

namespace warpcall {

std::vector<Implementation> MatmulCudaRows() {
  return {matmul::CublasltRow(), matmul::DotPerOutputRow(), matmul::MmaTiledRow(),
          matmul::RegisterTiledRow(), matmul::ThreadPerOutputRow()};
}

}  // namespace warpcall
