#include "kernels/linear/linear.h"

namespace warpcall {

std::vector<Implementation> LinearCudaRows() {
  return {linear::CublasltRow(), linear::ChainOfKernelsRow()};
}

}  // namespace warpcall
