// Expressions as clients write them, for example "gelu(x0 + x1) * 0.5":
//
//   comparison  sum [("<" | "<=" | ">" | ">=" | "==") sum]
//   sum         product {("+" | "-") product}
//   product     factor {("*" | "/") factor}
//   factor      "-" factor | number | name | name "(" comparison {"," comparison} ")"
//               | "(" comparison ")"
//
// A comparison stands only as the first argument of where(). Names are the inputs x0 to x7.
// Functions: exp, exp2, log, sqrt, rsqrt, tanh, erf, sigmoid, relu, abs, gelu, gelu_erf, silu of
// one argument; min and max of two; pow(a, constant); where(condition, a, b); dropout(a, constant);
// and along the last dimension softmax, sum, mean, max, min, var (population). A subexpression of
// numbers alone is a constant: computed in float64, rounded to float32 once.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/expression/graph.h"

namespace warpcall::expression {

inline constexpr int kInputsMax = 8;
inline constexpr int kOperationsMax = 256;  // operators, comparisons and calls, as written
inline constexpr int kDepthMax = 64;        // parentheses, calls and unary minus inside each other
inline constexpr size_t kCharactersMax = 4096;

// INVALID_ARGUMENT names the column, counted from 1, and the limit, if one is crossed. Takes time
// proportional to the length of `text`.
absl::StatusOr<Graph> Parse(absl::string_view text);

}  // namespace warpcall::expression
