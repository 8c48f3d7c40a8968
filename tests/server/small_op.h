// An op with kernels that tests define.
#pragma once

#include "kernels/op.h"

namespace warpcall::testing {

inline absl::Status InferSame(Problem* problem) {
  problem->outputs = {problem->inputs[0]};
  return absl::OkStatus();
}

// y, of the type and shape of x, element by element. Made for each caller, for good.
inline const Op& NewSmallOp(const char* name, const char* summary) {
  return *new Op{.name = name,
                 .summary = summary,
                 .input_names = {"x"},
                 .attributes = {},
                 .infer_outputs = InferSame,
                 .work =
                     [](const Problem& problem) {
                       const int64_t elements = problem.inputs[0].elements();
                       return Work{8 * elements, elements};
                     },
                 .independence = Independence::kElements};
}

// y[m, n] of x[m, k], by rows, and of weight[n], which all rows share. Made for each caller, for
// good.
inline const Op& NewSharingOp(const char* name) {
  return *new Op{.name = name,
                 .summary = "",
                 .input_names = {"x", "weight"},
                 .attributes = {},
                 .infer_outputs =
                     [](Problem* problem) {
                       problem->outputs = {problem->inputs[0]};
                       problem->outputs[0].dims.back() = problem->inputs[1].dims[0];
                       return absl::OkStatus();
                     },
                 .work = [](const Problem&) { return Work{}; },
                 .independence = Independence::kRows,
                 .input_roles = {OperandRole::kSplit, OperandRole::kShared}};
}

}  // namespace warpcall::testing
