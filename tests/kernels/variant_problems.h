// Problems that between them suit every variant of every row, for tests of variants.
#pragma once

#include <string>
#include <vector>

#include "kernels/op.h"

namespace warpcall::testing {

struct VariantProblem {
  std::string name;
  Problem problem;
};

// Problems of `op` in `type`: lengths at, one below and one above those where tables change their
// choice, in whole vectors and not, one tile and several, all layouts of operands. Empty for an op
// whose rows have no variants.
std::vector<VariantProblem> VariantProblems(const Op& op, DataType type);

// Problems of softmax and matmul, for the above.
std::vector<VariantProblem> SoftmaxVariantProblems(DataType type);
std::vector<VariantProblem> MatmulVariantProblems(DataType type);

// Problems of matmul with precision=tf32.
std::vector<VariantProblem> Tf32Problems();
// Tf32Problems with up to 8192 terms, both operands along k and not.
std::vector<VariantProblem> LongTf32Problems();

// REQUIRES: the op takes it.
VariantProblem NameProblem(const Op& op, const std::vector<TensorSpec>& inputs,
                           const std::vector<NamedAttribute>& attributes);

}  // namespace warpcall::testing
