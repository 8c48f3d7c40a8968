// --shape of `warpcall bench`, `profile` and `describe`: one text for many problems.
//
//   SHAPE     = INPUT,INPUT,...         one for each input; one alone: see InputShapes
//   INPUT     = DIMENSIONxDIMENSIONx...
//   DIMENSION = 1024                    0 or more
//             | {256,512,4096}          each of these
//             | {256..262144:x2}        from 256 on, doubling, not above 262144
//             | {1024..8192:+1024}      from 1024 on, in steps, not above 8192
//
// Several braces: all combinations, the last brace changing fastest; or with --zip their first
// values together, then their second ones, and so on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/tensor_text.h"
#include "warpcall/client.h"

namespace warpcall::cli {

inline constexpr int kSweepPointsMax = 256;

struct ShapePoint {
  std::string text;  // as it would be written without braces
  Shapes shapes;     // for the inputs that the text names
};

enum class Braces : uint8_t { kCombined, kZipped };

// INVALID_ARGUMENT names the text, what is wrong with it and what is allowed, also for more than
// kSweepPointsMax points, and for braces to zip that have different numbers of values.
absl::StatusOr<std::vector<ShapePoint>> ParseShapeSweep(absl::string_view text,
                                                        Braces braces = Braces::kCombined);

// True when all rows share an input of this kernel, such as weights, with a shape of its own.
bool HasWeights(const client::KernelInfo& kernel);

// Returns the shapes of all inputs that `kernels` lists. For two inputs a single MxNxK stands for
// a[m, k] and b[k, n], stored as transpose_a and transpose_b in `attributes` say; for linear it
// stands for x[m, k], weight[n, k] and bias[n]. For another kernel with weights a single shape is
// that of the first input, and its last dimension that of every weight; otherwise a single shape
// applies to every input. INVALID_ARGUMENT when the point fits no way. Leaves unlisted kernels
// alone: the server reports them.
absl::StatusOr<Shapes> InputShapes(const ShapePoint& point, const std::string& kernel,
                                   const AttributeMap& attributes,
                                   absl::Span<const client::KernelInfo> kernels);

// A problem as the command line says it.
struct ProblemText {
  std::string kernel;
  std::string shape;
  std::string type;  // empty: float32
};

// The inputs of the one problem that `text` is of. INVALID_ARGUMENT as above, and for a shape with
// braces.
absl::StatusOr<std::vector<client::TensorSpec>> OneProblem(
    const ProblemText& text, const AttributeMap& attributes,
    absl::Span<const client::KernelInfo> kernels);

}  // namespace warpcall::cli
