// The file of --tuning_cache, written by another process or a person: the input gives the lines
// between a right first and last line, or the whole file if it begins with "!".
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/registry.h"
#include "server/engine/tuning_text.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

std::string Written(const Registry& registry, TuningText text) {
  std::vector<std::shared_ptr<const TunedClass>> classes;
  for (TunedClass& tuned : text.classes)
    classes.push_back(std::make_shared<const TunedClass>(std::move(tuned)));
  return FormatTuning(registry, classes, text.unknown);
}

// Splits the lines into classes, so that the file gives their right number.
std::vector<std::string> ClassesOf(absl::string_view lines) {
  std::vector<std::string> classes;
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    if (classes.empty() || absl::StartsWith(line, "class")) classes.emplace_back();
    absl::StrAppend(&classes.back(), line, "\n");
  }
  return classes;
}

}  // namespace

std::string FuzzTuning(absl::string_view input) {
  static const Registry* const registry = [] {
    auto* made = new Registry;
    AddCpuKernels(made);
    return made;
  }();
  const bool as_it_is = absl::ConsumePrefix(&input, "!");
  const std::string file =
      as_it_is ? std::string(input) : FormatTuning(*registry, {}, ClassesOf(input));
  absl::StatusOr<TuningText> read = ParseTuning(*registry, file);
  if (!read.ok()) return absl::IsInvalidArgument(read.status()) ? "" : read.status().ToString();
  for (const TunedClass& tuned : read->classes) {
    // Opens the file as a starting server does; no file may end the process.
    TuningTable table(*registry);
    table.Take(tuned);
  }
  const std::string once = Written(*registry, *std::move(read));
  read = ParseTuning(*registry, once);
  if (!read.ok()) return absl::StrCat("not read again: ", read.status().ToString());
  const std::string twice = Written(*registry, *std::move(read));
  return twice == once ? "" : absl::StrCat("written differently:\n", once, twice);
}

}  // namespace warpcall::testing
