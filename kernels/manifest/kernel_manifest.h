// The manifest of a kernel that a user pushes, warpcall-kernel/1: one JSON object that says what
// the kernel computes, which problems it takes and how it is launched.
//   name           [a-z][a-z0-9_-]{0,62}
//   op             an op of the server, whose definition the kernel must compute
//   attributes     values of the op's attributes that the kernel is for; others have their defaults
//   types          data types, a list
//   inputs         "any" (default), or "finite": infinities and NaN are not judged
//   code           {"kind": "cuda", "entry": NAME, "options": [...]}
//   args           the entry's parameters, in its order: "x.ptr", "y.ptr", "scratch.ptr", or a
//                  value and its type: "rows:i64", "attr.epsilon:f32", "1.5:f32", "zero:u64"
//   launch         {"grid": [X, Y, Z], "block": [X, Y, Z], "shared": BYTES}; Y, Z and shared may
//                  lack
//   kernels        in place of entry, args and launch: a list of {"entry", "args", "launch"}, run
//                  in order
//   scratch        bytes; scratch_zero: true: zeroed before each launch
//   requires       conditions on shapes
//   examples       problems as lists of shapes, which others are drawn around
//   deterministic  true (default): the same bits each time
//
// Grids, blocks, shared, scratch, values and conditions are integer expressions (or numbers) over
//   OPERAND.shape[I], .rank, .elements, .bytes   of an input by its name, or of the output: y, c
//   rows, cols, elements   of input 0: cols is its last dimension
//   m, n, k, batch         for matmul and linear
//   attr.NAME              an attribute that is an integer or a truth value
//   sm_count, zero         multiprocessors of the device; 0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/manifest/integer_expression.h"
#include "kernels/op.h"

namespace warpcall::manifest {

struct KernelArgument {
  enum class Type : uint8_t { kPointer, kInt32, kInt64, kUint32, kUint64, kFloat32 };

  std::string text;  // as in the manifest
  Type type = Type::kPointer;
  int operand = -1;                        // of a pointer: inputs first; kScratchOperand
  std::optional<IntegerExpression> value;  // of a scalar, but where one of the next two is
  std::optional<float> number;
  int attribute = -1;  // in the op's order; its type is double
};
inline constexpr int kScratchOperand = -2;

// One entry of the code, and how it is launched.
struct KernelEntry {
  std::string name;
  std::vector<KernelArgument> arguments;
  std::vector<IntegerExpression> grid;   // 1 to 3
  std::vector<IntegerExpression> block;  // 1 to 3
  std::optional<IntegerExpression> shared;
};

struct KernelManifest {
  std::string name;
  const Op* op = nullptr;
  std::vector<std::pair<std::string, AttributeValue>> attributes;
  std::vector<DataType> types;
  bool finite_inputs = false;
  std::vector<std::string> options;  // the compiler's
  std::vector<KernelEntry> entries;  // in the order in which they run
  std::optional<IntegerExpression> scratch;
  bool scratch_zero = false;
  std::vector<IntegerExpression> requirements;
  std::vector<std::vector<Dims>> examples;
  bool deterministic = true;
  std::string canonical;  // the JSON with its members in order and without spaces
};

// Returns the op of that name, or null.
using FindOp = absl::FunctionRef<const Op*(absl::string_view name)>;
// INVALID_ARGUMENT names the member that is missing, unknown, of the wrong type or out of bounds,
// and for expressions the column.
absl::StatusOr<KernelManifest> ReadKernelManifest(absl::string_view json, FindOp find_op);

// The attributes of the manifest's problems, for MakeProblem; they refer to the manifest.
std::vector<NamedAttribute> AttributesOf(const KernelManifest& manifest);

// OK if the kernel is for the problem; otherwise INVALID_ARGUMENT says what it is for.
absl::Status CheckTaken(const KernelManifest& manifest, const Problem& problem,
                        const DeviceProperties& device);

struct Parameter {
  size_t bytes = 0;
  uint64_t bits = 0;  // of a scalar, in the first bytes
  int operand = -1;   // of a pointer, as KernelArgument's
};
struct KernelLaunch {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<Parameter> parameters;
};
struct KernelLaunches {
  std::vector<KernelLaunch> launches;  // by entry
  int64_t scratch_bytes = 0;
};
// INVALID_ARGUMENT names the member, and the value and limit or the column, for which the problem
// cannot be launched on the device. REQUIRES: CheckTaken is OK.
absl::StatusOr<KernelLaunches> LaunchesFor(const KernelManifest& manifest, const Problem& problem,
                                           const DeviceProperties& device);

}  // namespace warpcall::manifest
