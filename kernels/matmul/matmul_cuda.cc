#include "kernels/matmul/matmul.h"

namespace warpcall {

std::vector<Implementation> MatmulCudaRows() {
  return {matmul::CublasltRow(),     matmul::DotPerOutputRow(),   matmul::WgmmaTiledRow(),
          matmul::WgmmaTf32Row(),    matmul::MmaTiledRow(),       matmul::RegisterTiledRow(),
          matmul::TritonMatmulRow(), matmul::ThreadPerOutputRow()};
}

}  // namespace warpcall
