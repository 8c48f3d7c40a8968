#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/norm/norm.h"

namespace warpcall {

std::vector<Implementation> RmsnormCudaRows() {
  return {norm::WarpPerRowRow(), norm::BlockPerRowRow(), norm::TwoPassRow(),
          norm::ChainOfKernelsRow()};
}

}  // namespace warpcall
