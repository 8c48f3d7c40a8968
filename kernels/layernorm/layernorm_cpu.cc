#include "kernels/cpu/definition_row.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/norm/norm.h"

namespace warpcall {
namespace {

absl::Status LaunchDefinition(const Problem& problem, const Operands& operands,
                              const LaunchContext& context) {
  return cpu::LaunchDefinition(LayernormOp(), problem, operands, context);
}

}  // namespace

std::vector<Implementation> LayernormCpuRows() {
  return {norm::SimdRowsRow(), layernorm::OnednnRow(), norm::ChainOfLoopsRow(),
          norm::Float64Row(LaunchDefinition)};
}

}  // namespace warpcall
