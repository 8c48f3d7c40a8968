#include "kernels/layernorm/layernorm.h"
#include "kernels/norm/norm.h"

namespace warpcall {

std::vector<Implementation> LayernormCpuRows() {
  return {norm::SimdRowsRow(), layernorm::OnednnRow(), norm::ChainOfLoopsRow(),
          norm::Float64Row(LayernormOp())};
}

}  // namespace warpcall
