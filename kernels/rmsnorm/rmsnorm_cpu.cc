#include "kernels/norm/norm.h"
#include "kernels/rmsnorm/rmsnorm.h"

namespace warpcall {

std::vector<Implementation> RmsnormCpuRows() {
  return {norm::SimdRowsRow(), norm::ChainOfLoopsRow(), norm::Float64Row(RmsnormOp())};
}

}  // namespace warpcall
