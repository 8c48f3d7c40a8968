#include "kernels/linear/linear.h"

namespace warpcall {

std::vector<Implementation> LinearCudaRows() { return {linear::ChainOfKernelsRow()}; }

}  // namespace warpcall
