#include "kernels/softmax/softmax_expression.h"

#include "kernels/expression/parser.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/check.h"

namespace warpcall::softmax {

// Exponents are at most 0, and a sum of their powers lies between 1 and n: nothing leaves float32's
// range.
expression::CudaTask TaskOf(const Problem& problem) {
  const View view = ViewOf(problem);
  WARPCALL_DCHECK(view.inner == 1, view.inner);
  return {.graph = *expression::Parse("softmax(x0)"),
          .inputs = {{problem.inputs[0].data_type, {view.rows(), view.n}}},
          .arithmetic = expression::CudaArithmetic::kQuick};
}

}  // namespace warpcall::softmax
