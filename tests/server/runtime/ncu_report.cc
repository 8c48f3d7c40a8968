#include "tests/server/runtime/ncu_report.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace warpcall::testing {
namespace {

// Every field is quoted, and has no quotes within.
std::vector<std::string> Fields(absl::string_view line) {
  std::vector<std::string> fields;
  for (size_t open = line.find('"'); open != absl::string_view::npos;) {
    const size_t close = line.find('"', open + 1);
    if (close == absl::string_view::npos) break;
    fields.emplace_back(line.substr(open + 1, close - open - 1));
    open = line.find('"', close + 1);
  }
  return fields;
}

}  // namespace

absl::StatusOr<std::vector<NcuKernel>> ParseNcu(absl::string_view text) {
  std::vector<std::string> columns;
  std::vector<NcuKernel> kernels;
  int lines_of_table = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (columns.empty() && !absl::StartsWith(line, "\"ID\"")) continue;
    const std::vector<std::string> fields = Fields(line);
    ++lines_of_table;
    if (lines_of_table == 1) columns = fields;
    if (lines_of_table <= 2 || fields.size() != columns.size()) continue;
    NcuKernel& kernel = kernels.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) kernel[columns[i]] = fields[i];
  }
  if (!kernels.empty()) return kernels;
  return absl::InvalidArgumentError(absl::StrCat("ncu reports no kernel: ", text));
}

absl::StatusOr<double> NcuNumber(const NcuKernel& kernel, const std::string& column) {
  const auto found = kernel.find(column);
  double value;
  if (found != kernel.end() &&
      absl::SimpleAtod(absl::StrReplaceAll(found->second, {{",", ""}}), &value))
    return value;
  return absl::NotFoundError(absl::StrCat("ncu gives no number for ", column, "; it has: ",
                                          absl::StrJoin(kernel, ", ", absl::PairFormatter("="))));
}

}  // namespace warpcall::testing
