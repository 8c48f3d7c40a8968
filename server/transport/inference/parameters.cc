#include "server/transport/inference/parameters.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::oip {
namespace {

using inference::InferParameter;

constexpr int64_t kNsPerUs = 1000;
constexpr uint64_t kInt64Max = std::numeric_limits<int64_t>::max();
// Clients of Triton send this one with every request; there is one response each, so it says
// nothing.
constexpr char kEmptyFinalResponse[] = "triton_enable_empty_final_response";
constexpr const char* kCallParameters[] = {"implementation", "device",           "timeout",
                                           "priority",       "sequence_id",      "sequence_start",
                                           "sequence_end",   kEmptyFinalResponse};

absl::Status Wrong(absl::string_view name, absl::string_view takes) {
  return absl::InvalidArgumentError(absl::StrCat("parameter \"", name, "\" must be ", takes));
}

// As a whole number, if it is one in range.
absl::optional<int64_t> WholeNumber(const InferParameter& parameter) {
  int64_t value;
  switch (parameter.parameter_choice_case()) {
    case InferParameter::kInt64Param:
      return parameter.int64_param();
    case InferParameter::kUint64Param:
      if (parameter.uint64_param() > kInt64Max) break;
      return static_cast<int64_t>(parameter.uint64_param());
    case InferParameter::kStringParam:
      if (absl::SimpleAtoi(parameter.string_param(), &value)) return value;
      break;
    default:
      break;
  }
  return absl::nullopt;
}

absl::StatusOr<int64_t> NotNegative(const std::string& name, const InferParameter& parameter) {
  const absl::optional<int64_t> value = WholeNumber(parameter);
  if (!value.has_value()) return Wrong(name, "a whole number of 64 bits");
  if (*value < 0) return Wrong(name, absl::StrCat("0 or more; it is ", *value));
  return *value;
}

// Clamps values above int64's range to its maximum, which has the same effect.
InferParameter UpToInt64(InferParameter parameter) {
  if (parameter.has_uint64_param())
    parameter.set_uint64_param(std::min<uint64_t>(parameter.uint64_param(), kInt64Max));
  return parameter;
}

absl::Status CheckNoSequence(const std::string& name, const InferParameter& parameter) {
  const bool is_none = (parameter.has_bool_param() && !parameter.bool_param()) ||
                       (parameter.has_string_param() && parameter.string_param().empty()) ||
                       WholeNumber(parameter) == 0;
  if (is_none) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter \"", name,
                   "\": kernels keep nothing between requests, so there are no sequences"));
}

absl::StatusOr<AttributeValue> ToAttribute(const AttributeSpec& spec,
                                           const InferParameter& parameter) {
  const bool is_text = parameter.has_string_param();
  const std::string& text = parameter.string_param();
  if (std::holds_alternative<std::string>(spec.default_value)) {
    if (is_text) return AttributeValue(text);
    return Wrong(spec.name, "a string");
  }
  if (std::holds_alternative<bool>(spec.default_value)) {
    bool value = parameter.bool_param();
    if (parameter.has_bool_param() || (is_text && absl::SimpleAtob(text, &value)))
      return AttributeValue(value);
    return Wrong(spec.name, "true or false");
  }
  const absl::optional<int64_t> whole = WholeNumber(parameter);
  if (std::holds_alternative<int64_t>(spec.default_value)) {
    if (whole.has_value()) return AttributeValue(*whole);
    return Wrong(spec.name, "a whole number of 64 bits");
  }
  double number = parameter.double_param();
  if (parameter.has_double_param() || (is_text && absl::SimpleAtod(text, &number)))
    return AttributeValue(number);
  if (whole.has_value()) return AttributeValue(static_cast<double>(*whole));
  return Wrong(spec.name, "a number");
}

// Null: there is none.
const InferParameter* Find(const Parameters& parameters, const char* name) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr : &found->second;
}

}  // namespace

absl::StatusOr<CallParameters> ReadCallParameters(const Parameters& parameters) {
  CallParameters read;
  for (const auto& [name, parameter] : parameters) {
    if (name == "implementation" || name == "device") {
      if (!parameter.has_string_param()) return Wrong(name, "a string");
      (name == "device" ? read.device : read.implementation) = parameter.string_param();
    } else if (name == "timeout" || name == "priority") {
      int64_t value;
      ASSIGN_OR_RETURN(value, NotNegative(name, UpToInt64(parameter)));
      if (name == "timeout" && value > 0)
        read.timeout_ns = value > kNoDeadline / kNsPerUs ? kNoDeadline : value * kNsPerUs;
    } else if (absl::StartsWith(name, "sequence_")) {
      RETURN_IF_ERROR(CheckNoSequence(name, parameter));
    } else if (absl::StartsWith(name, "triton_") && name != kEmptyFinalResponse) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter \"", name, "\" is unknown: of those that begin with \"triton_\" there is ",
          kEmptyFinalResponse));
    }
  }
  return read;
}

absl::StatusOr<std::vector<NamedAttribute>> ReadAttributes(const Parameters& parameters,
                                                           const Op& op) {
  std::vector<NamedAttribute> attributes;
  for (const auto& [name, parameter] : parameters) {
    if (absl::c_linear_search(kCallParameters, name)) continue;
    NamedAttribute& attribute = attributes.emplace_back();
    attribute.name = name;
    // MakeProblem refuses what there is not, and says what there is.
    for (const AttributeSpec& spec : op.attributes) {
      if (attribute.name != spec.name) continue;
      ASSIGN_OR_RETURN(attribute.value, ToAttribute(spec, parameter));
    }
  }
  return attributes;
}

absl::StatusOr<absl::optional<RegionUse>> ReadRegionUse(const Parameters& parameters) {
  const InferParameter* const region = Find(parameters, "shared_memory_region");
  if (region == nullptr) return absl::optional<RegionUse>();
  if (!region->has_string_param()) return Wrong("shared_memory_region", "a string");
  RegionUse use{.region = region->string_param()};
  const InferParameter* const bytes = Find(parameters, "shared_memory_byte_size");
  if (bytes == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("shared memory region \"", use.region,
                                                   "\" is given without shared_memory_byte_size"));
  ASSIGN_OR_RETURN(const int64_t size, NotNegative("shared_memory_byte_size", *bytes));
  use.bytes = static_cast<uint64_t>(size);
  if (const InferParameter* offset = Find(parameters, "shared_memory_offset"); offset != nullptr) {
    ASSIGN_OR_RETURN(const int64_t value, NotNegative("shared_memory_offset", *offset));
    use.offset = static_cast<uint64_t>(value);
  }
  return absl::optional<RegionUse>(use);
}

absl::StatusOr<absl::string_view> ReadHandle(const Parameters& parameters) {
  const InferParameter* const handle = Find(parameters, "handle");
  if (handle == nullptr) return absl::string_view();
  if (handle->string_param().empty()) return Wrong("handle", "a string that is not empty");
  return absl::string_view(handle->string_param());
}

absl::Status CheckNoClassification(const Parameters& parameters) {
  const InferParameter* const classes = Find(parameters, "classification");
  if (classes == nullptr || WholeNumber(*classes) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "parameter \"classification\": outputs come as they are, never as classes");
}

}  // namespace warpcall::oip
