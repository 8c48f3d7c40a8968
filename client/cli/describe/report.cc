#include "client/cli/describe/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

using client::Description;
using client::SourceFile;
using nlohmann::json;

std::string FactTable(const Description& description) {
  const auto& launch = description.launch();
  Table table({{"FACT"}, {"VALUE"}});
  table.AddRow({"family", description.family()});
  table.AddRow({"chosen because", description.chosen_because()});
  if (!description.grid().empty()) {
    table.AddRow(
        {"grid", absl::StrCat(description.grid(), " blocks of ", description.block(), " threads")});
    table.AddRow({"waves", absl::StrFormat("%.2f", launch.waves())});
    table.AddRow({"occupancy", absl::StrFormat("%.1f%%", 100 * launch.theoretical_occupancy())});
    table.AddRow({"registers", absl::StrCat(description.registers_per_thread(), " a thread")});
    table.AddRow({"shared memory",
                  absl::StrCat(HumanBytes(static_cast<double>(description.shared_memory_bytes())),
                               " a block")});
    table.AddRow({"local memory",
                  absl::StrCat(HumanBytes(static_cast<double>(description.local_memory_bytes())),
                               " a thread")});
  }
  if (launch.gpu_kernels() > 0) table.AddRow({"GPU kernels", absl::StrCat(launch.gpu_kernels())});
  table.AddRow({"workspace", HumanBytes(static_cast<double>(description.workspace_bytes()))});
  table.AddRow({"moves at least", HumanBytes(static_cast<double>(launch.bytes_moved()))});
  table.AddRow({"computes", absl::StrCat(launch.flops(), " FLOP")});
  table.AddRow({"tolerance", description.tolerance()});
  return table.ToString();
}

int64_t LinesOf(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

std::string FileTable(const Description& description) {
  Table table({{"FILE"}, {"LANGUAGE"}, {"LINES", Table::Align::kRight}});
  for (const SourceFile& file : description.files())
    table.AddRow({file.name(), file.language(), absl::StrCat(LinesOf(file.text()))});
  return table.ToString();
}

}  // namespace

std::string ToText(const DescribeReport& report) {
  const Description& description = report.description;
  const std::string title =
      absl::StrCat(report.kernel, " on ", description.device(), " by ",
                   VariantName(description.implementation(), description.launch().variant()));
  std::string text = absl::StrCat(Fitted("", title, 0), "\n", FactTable(description));
  if (!description.files().empty())
    absl::StrAppend(&text, "\n", FileTable(description), "to be read with --source LANGUAGE\n");
  if (!report.advice.empty()) absl::StrAppend(&text, "\n");
  for (const std::string& sentence : report.advice) absl::StrAppend(&text, Fitted("", sentence, 0));
  return text;
}

json ToJson(const DescribeReport& report) {
  json value = ToJson(report.description);
  value["kernel"] = report.kernel;
  value["advice"] = report.advice;
  return value;
}

absl::StatusOr<std::string> SourceText(const Description& description,
                                       const std::string& language) {
  std::vector<const SourceFile*> found;
  std::set<std::string> languages;
  for (const SourceFile& file : description.files()) {
    languages.insert(file.language());
    if (file.language() == language) found.push_back(&file);
  }
  if (found.empty())
    return absl::NotFoundError(
        absl::StrCat(VariantName(description.implementation(), description.launch().variant()),
                     " has no files in ", language,
                     "; it has: ", languages.empty() ? "none" : absl::StrJoin(languages, ", ")));
  if (found.size() == 1) return found[0]->text();
  std::string text;
  for (const SourceFile* const file : found)
    absl::StrAppend(&text, text.empty() ? "" : "\n", "==> ", Printable(file->name()), " <==\n",
                    file->text());
  return text;
}

}  // namespace warpcall::cli
