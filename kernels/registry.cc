#include "kernels/registry.h"

#include <array>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/common/check.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"

namespace warpcall {

const char* CauseName(Unavailability::Cause cause) {
  switch (cause) {
    case Unavailability::Cause::kDriver:
      return "driver";
    case Unavailability::Cause::kLibrary:
      return "library";
    case Unavailability::Cause::kSelfTest:
      return "self_test";
    case Unavailability::Cause::kCompile:
      return "compile";
    case Unavailability::Cause::kNotTried:
      return "not_tried";
  }
  return "unknown";
}

void Registry::Add(const Op& op, absl::Span<const Implementation> rows) {
  auto kernel = absl::c_find_if(kernels_, [&](const Kernel& k) { return k.op == &op; });
  if (kernel == kernels_.end()) {
    kernels_.push_back({static_cast<int>(kernels_.size()), &op, {}});
    kernel = kernels_.end() - 1;
  }
  const std::vector<Allowance> allowances =
      op.cases == nullptr ? std::vector<Allowance>() : op.cases().allowances;
  for (const Implementation& row : rows) {
    // A catalog that contradicts itself is found at every start.
    WARPCALL_CHECK(row.supports != nullptr && row.plan != nullptr, op.name, row.name);
    for (const int taken : kernel->rows)
      WARPCALL_CHECK(rows_[taken].implementation.name != absl::string_view(row.name), op.name,
                     row.name);
    const int id = static_cast<int>(rows_.size());
    rows_.push_back({id, kernel->id, row});
    absl::c_copy_if(allowances, std::back_inserter(rows_.back().deviations),
                    [&](const Allowance& allowance) {
                      return absl::string_view(row.name) == allowance.row && allowance.Deviates();
                    });
    kernel->rows.push_back(id);
  }
}

void Registry::SetAvailability(int row, Unavailability why_not) {
  WARPCALL_CHECK(row >= 0 && static_cast<size_t>(row) < rows_.size(), row, rows_.size());
  const Unavailability* kept = nullptr;
  if (!why_not.reason.empty()) kept = &reasons_.emplace_back(std::move(why_not));
  rows_[static_cast<size_t>(row)].availability.why_not_.store(kept, std::memory_order_release);
}

absl::StatusOr<const Kernel*> Registry::Find(absl::string_view name) const {
  for (const Kernel& kernel : kernels_)
    if (kernel.is_named() && name == kernel.op->name) return &kernel;
  std::vector<absl::string_view> known;
  for (const Kernel& kernel : kernels_)
    if (kernel.is_named()) known.push_back(kernel.op->name);
  return absl::NotFoundError(
      absl::StrCat("kernel \"", name, "\" is unknown; available: ", absl::StrJoin(known, ", ")));
}

std::string PinnedName(const Implementation& row) {
  return PinnedName(FamilyName(row.family), row.name);
}

bool Registry::Matches(const Row& row, absl::string_view requested) {
  return IsAuto(requested) || requested == FamilyName(row.implementation.family) ||
         Pins(row, requested);
}

bool Registry::Pins(const Row& row, absl::string_view requested) {
  const absl::string_view family = FamilyName(row.implementation.family);
  // Avoids making a string: each request runs this.
  if (absl::ConsumePrefix(&requested, family) && !absl::ConsumePrefix(&requested, ":"))
    requested =
        absl::string_view(requested.data() - family.size(), requested.size() + family.size());
  return requested == row.implementation.name;
}

absl::Status Registry::CheckRuns(const Row& row, const Problem& problem,
                                 const DeviceProperties& device) {
  WARPCALL_DCHECK(!problem.inputs.empty() && !problem.outputs.empty(), row.implementation.name);
  const Unavailability* const why_not = row.availability.why_not();
  const bool is_tried = why_not == nullptr || why_not->cause != Unavailability::Cause::kNotTried;
  if (why_not != nullptr && is_tried) return absl::UnimplementedError(why_not->reason);
  const Implementation& implementation = row.implementation;
  if (implementation.device_kind != device.kind) {
    return absl::UnimplementedError(
        absl::StrCat("runs on ", DeviceKindName(implementation.device_kind), " devices, and ",
                     device.name, " is a ", DeviceKindName(device.kind), " device"));
  }
  for (const TensorSpec& input : problem.inputs) {
    if (absl::c_linear_search(implementation.data_types, input.data_type)) continue;
    return absl::UnimplementedError(absl::StrCat(
        "does not take ", DataTypeName(input.data_type), "; takes ",
        absl::StrJoin(implementation.data_types, ", ", [](std::string* out, DataType type) {
          absl::StrAppend(out, DataTypeName(type));
        })));
  }
  RETURN_IF_ERROR(implementation.supports(problem, device));
  return is_tried ? absl::OkStatus() : absl::UnavailableError(why_not->reason);
}

const char* Registry::WhyNotAuto(const Row& row, DataType type) {
  const auto found = absl::c_find_if(row.deviations, [type](const Allowance& allowance) {
    return allowance.data_types.empty() || absl::c_linear_search(allowance.data_types, type);
  });
  return found == row.deviations.end() ? nullptr : found->reason;
}

absl::Status Registry::CheckServes(const Row& row, absl::string_view requested,
                                   const Problem& problem, const DeviceProperties& device) {
  RETURN_IF_ERROR(CheckRuns(row, problem, device));
  if (!IsAuto(requested)) return absl::OkStatus();
  const char* const reason = WhyNotAuto(row, problem.outputs[0].data_type);
  if (reason == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("runs only where it, or its family, is asked for. ", reason));
}

namespace {

// "", or why a server lacks the family that others have.
const char* WhyNone(absl::Span<const Row> rows, absl::string_view requested) {
  const absl::string_view family = requested.substr(0, requested.find(':'));
  const bool is_of_gpus =
      absl::c_any_of(std::array{Family::kCuda, Family::kTriton, Family::kCompiled},
                     [family](Family of_gpus) { return family == FamilyName(of_gpus); });
  const bool has_gpus = absl::c_any_of(
      rows, [](const Row& row) { return row.implementation.device_kind == DeviceKind::kCuda; });
  return is_of_gpus && !has_gpus ? "; this build of the server has no kernels for GPUs" : "";
}

}  // namespace

absl::Status Registry::CheckImplementationName(const Kernel& kernel,
                                               absl::string_view requested) const {
  if (absl::c_any_of(kernel.rows, [&](int id) { return Matches(rows_[id], requested); }))
    return absl::OkStatus();
  std::vector<std::string> pinned;
  std::vector<std::string> families;
  for (int id : kernel.rows) {
    const std::string family = FamilyName(rows_[id].implementation.family);
    pinned.push_back(PinnedName(rows_[id].implementation));
    if (!absl::c_linear_search(families, family)) families.push_back(family);
  }
  return absl::NotFoundError(absl::StrCat("implementation \"", requested, "\" of ", kernel.op->name,
                                          " is unknown; available: ", absl::StrJoin(families, ", "),
                                          "; their variants: ", absl::StrJoin(pinned, ", "),
                                          WhyNone(rows_, requested)));
}

absl::StatusOr<const Row*> Registry::Select(const Kernel& kernel, const Wish& wish,
                                            const DeviceProperties& device) const {
  WARPCALL_DCHECK(!wish.problems.empty());
  WARPCALL_DCHECK(&kernel == &kernels_[static_cast<size_t>(kernel.id)], kernel.id, kernels_.size());
  if (absl::Status known = CheckImplementationName(kernel, wish.requested); !known.ok())
    return known;
  const auto check = [&](const Row& row) -> absl::Status {
    for (const Problem& problem : wish.problems)
      RETURN_IF_ERROR(CheckServes(row, wish.requested, problem, device));
    return wish.allows(row);
  };
  std::vector<std::string> refusals;
  auto code = absl::StatusCode::kUnimplemented;
  for (int id : kernel.rows) {
    const Row& row = rows_[id];
    if (!Matches(row, wish.requested)) continue;
    const absl::Status status = check(row);
    if (status.ok()) return &row;
    if (absl::IsUnavailable(status)) code = status.code();
    refusals.push_back(absl::StrCat(row.implementation.name, ": ", status.message()));
  }
  const auto append_spec = [](std::string* out, const TensorSpec& spec) {
    absl::StrAppend(out, ToString(spec));
  };
  const auto append_problem = [&](std::string* out, const Problem& problem) {
    absl::StrAppend(out, absl::StrJoin(problem.inputs, ", ", append_spec));
  };
  return absl::Status(
      code, absl::StrCat("no implementation of ", kernel.op->name, " takes ",
                         absl::StrJoin(wish.problems, " and ", append_problem), " on ", device.name,
                         ": ", refusals.empty() ? "it has none" : absl::StrJoin(refusals, "; ")));
}

}  // namespace warpcall
