#include "kernels/gelu/gelu_expression.h"

#include "kernels/expression/parser.h"
#include "kernels/gelu/gelu.h"

namespace warpcall::gelu {

expression::CudaTask TaskOf(const Problem& problem) {
  return {.graph = *expression::Parse(UsesTanh(problem) ? "gelu(x0)" : "gelu_erf(x0)"),
          .inputs = problem.inputs};
}

}  // namespace warpcall::gelu
