#include "kernels/cpu/definition_row.h"
#include "kernels/norm/norm.h"
#include "kernels/rmsnorm/rmsnorm.h"

namespace warpcall {
namespace {

absl::Status LaunchDefinition(const Problem& problem, const Operands& operands,
                              const LaunchContext& context) {
  return cpu::LaunchDefinition(RmsnormOp(), problem, operands, context);
}

}  // namespace

std::vector<Implementation> RmsnormCpuRows() {
  return {norm::SimdRowsRow(), norm::ChainOfLoopsRow(), norm::Float64Row(LaunchDefinition)};
}

}  // namespace warpcall
