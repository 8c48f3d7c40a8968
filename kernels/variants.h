// The ways that a row's launch can go: one for each kernel that is compiled for the row, and for
// each path through its launch that a problem or the row's own choice decides. Rows choose by
// themselves; tests and measurements may ask for a variant by number.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/op.h"

namespace warpcall {

struct Variants {
  // All that exist for a data type, made from the table that the kernels are instantiated from. A
  // variant's number is its place in this list. Names are distinct.
  std::vector<std::string> (*names)(DataType type);
  // What launch takes unless told otherwise. REQUIRES: the row supports `problem`, which has
  // something to launch: the output has elements and, in matmul, k > 0.
  int (*chosen)(const Problem& problem, const DeviceProperties& device);
  // OK, or why the variant cannot take `problem`: INVALID_ARGUMENT, or UNIMPLEMENTED as `supports`
  // has it. A variant may take more than the row would choose it for.
  // REQUIRES: something to launch, as above.
  absl::Status (*takes)(const Problem& problem, const DeviceProperties& device, int variant);
  // What a launch of the variant needs; of no meaning where it does not take the problem. Null:
  // what the row's workspace_bytes says.
  size_t (*workspace_bytes)(const Problem& problem, const DeviceProperties& device, int variant);
};

// OK when variant `number` is one of `count`.
inline absl::Status CheckVariantNumber(int number, int count) {
  if (number >= 0 && number < count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("variant ", number, " is unknown; there are ", count));
}

// The one that a launch takes: what context.variant asks for, if it takes the problem, or the row's
// choice.
inline absl::StatusOr<int> VariantToLaunch(const Variants& variants, const Problem& problem,
                                           const LaunchContext& context) {
  if (context.variant == kRowsChoice) return variants.chosen(problem, *context.device);
  const absl::Status taken = variants.takes(problem, *context.device, context.variant);
  if (!taken.ok()) return taken;
  return context.variant;
}

// The workspace of a launch with `variant`, which may be kRowsChoice.
inline size_t WorkspaceBytes(const Implementation& row, const Problem& problem,
                             const DeviceProperties& device, int variant) {
  if (variant != kRowsChoice && row.variants != nullptr && row.variants->workspace_bytes != nullptr)
    return row.variants->workspace_bytes(problem, device, variant);
  return row.workspace_bytes == nullptr ? 0 : row.workspace_bytes(problem, device);
}

}  // namespace warpcall
