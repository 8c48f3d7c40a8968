#include "kernels/norm/norm.h"
#include "kernels/rmsnorm/rmsnorm.h"

namespace warpcall {

std::vector<Implementation> RmsnormCudaRows() {
  return {norm::WarpPerRowRow(),    norm::BlockPerRowRow(),  norm::TwoPassRow(),
          norm::TritonRmsnormRow(), norm::CompiledNormRow(), norm::CudnnNormRow(),
          norm::ChainOfKernelsRow()};
}

}  // namespace warpcall
