#include "kernels/softmax/softmax.h"

namespace warpcall {

std::vector<Implementation> SoftmaxCpuRows() {
  return {softmax::SimdRowsRow(), softmax::OnednnSoftmaxRow(), softmax::ChainOfLoopsRow(),
          softmax::Float64Row()};
}

}  // namespace warpcall
