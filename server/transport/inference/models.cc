#include "server/transport/inference/models.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/engine/engine.h"

namespace warpcall::oip {
namespace {

// Between a model's name and what it is pinned to.
constexpr char kPin[] = "__";

// Those of the protocol that no kernel takes.
constexpr const char* kOtherTypes[] = {"BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8",
                                       "INT16", "INT32", "INT64",  "FP64",   "BYTES"};

bool Takes(const Row& row, DataType type) {
  return absl::c_linear_search(row.implementation.data_types, type);
}

}  // namespace

const char* WireTypeName(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "FP32";
    case DataType::kFloat16:
      return "FP16";
    case DataType::kBFloat16:
      return "BF16";
  }
  AbortOnDataType(type);
}

absl::StatusOr<DataType> ToDataType(absl::string_view wire_name) {
  for (const DataType type : kDataTypes)
    if (wire_name == WireTypeName(type)) return type;
  const bool is_known = absl::c_linear_search(kOtherTypes, wire_name);
  return absl::InvalidArgumentError(absl::StrCat("datatype \"", wire_name, "\" is ",
                                                 is_known ? "taken by no kernel" : "unknown",
                                                 "; kernels take FP32, FP16 and BF16"));
}

Models::Models(const Registry& registry) : registry_(registry) {
  for (const Kernel& kernel : registry.kernels()) {
    if (!kernel.is_named()) continue;
    Add({kernel.op->name, &kernel, absl::nullopt, ""});
    for (const DataType type : kDataTypes) AddTyped(kernel, type);
  }
}

void Models::Add(Model model) {
  // A row may have its family's name, and means the same then.
  if (by_name_.emplace(model.name, models_.size()).second) models_.push_back(std::move(model));
}

void Models::AddTyped(const Kernel& kernel, DataType type) {
  const std::string name =
      absl::StrCat(kernel.op->name, "_", absl::AsciiStrToLower(WireTypeName(type)));
  for (const int id : kernel.rows) {
    const Row& row = registry_.rows()[static_cast<size_t>(id)];
    if (!Takes(row, type)) continue;
    Add({name, &kernel, type, ""});
    for (const char* const pinned :
         {FamilyName(row.implementation.family), row.implementation.name})
      Add({absl::StrCat(name, kPin, pinned), &kernel, type, pinned});
  }
}

// Lists the pins of `name` if it is a known model with another pin; otherwise the kernels.
std::string Models::Known(absl::string_view name) const {
  const size_t pin = name.find(kPin);
  const auto unpinned = by_name_.find(name.substr(0, pin));
  std::vector<absl::string_view> known;
  if (pin != name.npos && unpinned != by_name_.end()) {
    const std::string start = absl::StrCat(models_[unpinned->second].name, kPin);
    for (const Model& model : models_)
      if (absl::StartsWith(model.name, start)) known.push_back(model.name);
  }
  if (!known.empty()) return absl::StrCat("Pinned are: ", absl::StrJoin(known, ", "));
  for (const Kernel& kernel : registry_.kernels())
    if (kernel.is_named()) known.push_back(kernel.op->name);
  return absl::StrCat("Kernels: ", absl::StrJoin(known, ", "));
}

absl::StatusOr<size_t> Models::Find(absl::string_view name, absl::string_view version) const {
  if (!absl::c_all_of(version, absl::ascii_isdigit))
    return absl::InvalidArgumentError(absl::StrCat(
        "model version \"", version, "\" is no number; every model has version ", kModelVersion));
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    return absl::NotFoundError(
        absl::StrCat("Request for unknown model: '", name,
                     "' is not found; a model is a kernel, or a kernel "
                     "with a type (gelu_fp32) and a family or row (gelu_bf16__cuda). ",
                     Known(name)));
  if (!version.empty() && version != kModelVersion)
    return absl::NotFoundError(absl::StrCat("Request for unknown model: '", name, "' version ",
                                            version, " is not found; every model has version ",
                                            kModelVersion));
  return found->second;
}

absl::Status Models::CheckReady(const Model& model, const Engine& engine) const {
  std::vector<std::string> reasons;
  for (const int id : model.kernel->rows) {
    const Row& row = registry_.rows()[static_cast<size_t>(id)];
    if (!Registry::Matches(row, model.implementation)) continue;
    if (model.data_type.has_value() && !Takes(row, *model.data_type)) continue;
    const Unavailability* const why_not = row.availability.why_not();
    std::string reason = why_not == nullptr ? "no healthy device runs it" : why_not->reason;
    if (why_not == nullptr) {
      for (int i = 0; i < engine.device_count(); ++i) {
        const Device& device = engine.device(i);
        const bool fits = device.properties().kind == row.implementation.device_kind;
        if (fits && device.healthy()) return absl::OkStatus();
      }
    }
    reasons.push_back(absl::StrCat(row.implementation.name, ": ", reason));
  }
  return absl::UnavailableError(absl::StrJoin(reasons, "; "));
}

}  // namespace warpcall::oip
