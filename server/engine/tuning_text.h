// Tuned classes as text, for a file that people can read:
//
//   warpcall tuning table 1
//   class "NVIDIA H200, 132 multiprocessors" softmax float32[16384,4096] axis=-1
//   stamp 1763877600000000000 "0.9.0" "580.65" 1980 1980 ""
//   right warp_per_row 142000 141800 142300 stable
//   wrong two_pass 3.2 "0.9.0"
//   end 1 5b0e...
//
// Times are nanoseconds of a launch: median, low and high. The last line has the number of classes
// and the SHA-256 of all before it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/registry.h"
#include "server/engine/tuning_table.h"

namespace warpcall {

struct TuningText {
  std::vector<TunedClass> classes;
  // The lines of classes whose kernels or problems the registry does not have. Kept for servers
  // that have them.
  std::vector<std::string> unknown;
};

// Sorted by device, kernel and problem.
std::string FormatTuning(const Registry& registry,
                         absl::Span<const std::shared_ptr<const TunedClass>> classes,
                         absl::Span<const std::string> unknown);

// INVALID_ARGUMENT names the first line that differs from FormatTuning's format, and how; nothing
// of such a text is used. Leaves out implementations that the registry does not have.
absl::StatusOr<TuningText> ParseTuning(const Registry& registry, absl::string_view text);

// "float32[16384,4096] axis=-1": inputs, and the attributes that differ from their defaults.
std::string ToText(const Op& op, const Problem& problem);

}  // namespace warpcall
