// Programs of others that are run for what they print.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace warpcall::inspect {

// The first of `folders` that holds an executable of this name, as a path. NOT_FOUND names them.
absl::StatusOr<std::string> FindTool(absl::string_view name, absl::Span<const std::string> folders);
// The folders of PATH, and where CUDA's toolkit lies by default.
std::vector<std::string> ToolFolders();

struct ToolLimits {
  absl::Duration time = absl::Seconds(30);
  size_t line_bytes = size_t{1} << 20;
};

// Runs a program, whose path comes first, and hands each line that it prints, without its end, to
// `take`, until that returns an error, which ends the program and is returned. It ends within the
// limits or is ended: DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED name the limit. INTERNAL when it
// could not be started or failed. REQUIRES: this process waits for its children itself, and is one
// that may start some.
absl::Status RunTool(const std::vector<std::string>& command, const ToolLimits& limits,
                     absl::FunctionRef<absl::Status(absl::string_view line)> take);

}  // namespace warpcall::inspect
