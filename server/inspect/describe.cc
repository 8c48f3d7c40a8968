#include "server/inspect/describe.h"

#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check/cases.h"
#include "kernels/source/files.h"
#include "proto/common/status_macros.h"
#include "server/inspect/disassembly.h"
#include "server/inspect/profile_rows.h"

namespace warpcall::inspect {
namespace {

// Those that are not among `files` yet.
void AddFiles(std::vector<SourceFile> more, std::vector<SourceFile>* files) {
  for (SourceFile& file : more) {
    const auto has_its_name = [&](const SourceFile& other) { return other.name == file.name; };
    if (absl::c_none_of(*files, has_its_name)) files->push_back(std::move(file));
  }
}

}  // namespace

absl::StatusOr<Description> DescribePlan(const Implementation& row, const Problem& problem,
                                         Device* device) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->CreateStream());
  RETURN_IF_ERROR(stream->BindThread());
  ASSIGN_OR_RETURN(const PlanPtr plan, row.plan(problem, {.device = &device->properties(),
                                                          .libraries = stream->libraries()}));
  Description description;
  ASSIGN_OR_RETURN(description.shape, plan->shape());
  description.grid = Extent(description.shape.grid);
  description.block = Extent(description.shape.block);
  description.workspace_bytes = static_cast<int64_t>(plan->traits().workspace_bytes);
  AddFiles(FilesOf(row.file), &description.files);
  AddFiles(plan->Sources(), &description.files);
  AddFiles(Disassemble(plan->Code(), {}), &description.files);
  return description;
}

std::string ToleranceOf(const Op& op, const Implementation& row, DataType data_type) {
  if (op.cases == nullptr) return "none: its results are checked against nothing";
  const OpCases cases = op.cases();
  const Allowance allowance = AllowanceFor(cases, row.name, data_type);
  std::vector<std::string> more;
  if (allowance.arithmetic != 1)
    more.push_back(
        absl::StrCat("its arithmetic may be off by ", allowance.arithmetic, " times as much"));
  if (allowance.roundings != 1)
    more.push_back(absl::StrCat("its result may be rounded ", allowance.roundings, " times"));
  if (allowance.zero_below != 0)
    more.push_back(absl::StrCat("what is smaller than ", allowance.zero_below, " may be 0"));
  if (allowance.flushes_subnormal_inputs) more.push_back("subnormal inputs may count as 0");
  if (more.empty()) return cases.tolerance;
  return absl::StrCat(cases.tolerance, "; of ", row.name, ": ", absl::StrJoin(more, ", "), ". ",
                      allowance.reason);
}

}  // namespace warpcall::inspect
