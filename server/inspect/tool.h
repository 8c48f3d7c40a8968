// Runs external programs and reads their output.
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

// The path of the first executable of this name in `folders`. NOT_FOUND names the folders.
absl::StatusOr<std::string> FindTool(absl::string_view name, absl::Span<const std::string> folders);
// The folders of PATH, and where CUDA's toolkit lies by default.
std::vector<std::string> ToolFolders();

struct ToolLimits {
  absl::Duration time = absl::Seconds(30);
  size_t line_bytes = size_t{1} << 20;
};

// Runs a program, whose path comes first, and passes each line of its output, without the
// newline, to `take`. An error from `take` ends the program and is returned. The program is ended
// at the limits: DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED name the limit. INTERNAL when it could
// not be started or failed. REQUIRES: no other thread starts or awaits processes meanwhile, and
// this one may start some.
absl::Status RunTool(const std::vector<std::string>& command, const ToolLimits& limits,
                     absl::FunctionRef<absl::Status(absl::string_view line)> take);

}  // namespace warpcall::inspect
