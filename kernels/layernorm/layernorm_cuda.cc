#include "kernels/layernorm/layernorm.h"
#include "kernels/norm/norm.h"

namespace warpcall {

std::vector<Implementation> LayernormCudaRows() {
  return {norm::WarpPerRowRow(),      norm::BlockPerRowRow(),  norm::TwoPassRow(),
          norm::TritonLayernormRow(), norm::CompiledNormRow(), norm::CudnnNormRow(),
          norm::ChainOfKernelsRow()};
}

}  // namespace warpcall
