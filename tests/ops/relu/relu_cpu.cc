#include "tests/ops/relu/relu.h"

namespace warpcall {

std::vector<Implementation> ReluCpuRows() { return {relu::ElementLoopRow(), relu::Float64Row()}; }

}  // namespace warpcall
