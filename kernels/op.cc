#include "kernels/op.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr const char* kTypeNames[] = {"a bool", "an int", "a double", "a string"};
static_assert(std::variant_size_v<AttributeValue> == std::size(kTypeNames));

std::string InputLabel(const Op& op, size_t i) {
  return absl::StrCat("input ", i, " (", op.input_names[i], ")");
}

std::string AttributeNames(const Op& op) {
  if (op.attributes.empty()) return "none";
  return absl::StrJoin(op.attributes, ", ", [](std::string* out, const AttributeSpec& attribute) {
    absl::StrAppend(out, attribute.name);
  });
}

absl::Status CheckAttributeValue(const AttributeSpec& spec, const AttributeValue& value) {
  if (value.index() != spec.default_value.index()) {
    return absl::InvalidArgumentError(absl::StrCat("attribute ", spec.name, " must be ",
                                                   kTypeNames[spec.default_value.index()], ", got ",
                                                   kTypeNames[value.index()]));
  }
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr || spec.allowed_values.empty()) return absl::OkStatus();
  if (absl::c_linear_search(spec.allowed_values, *text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", spec.name, "=\"", *text,
                   "\" is not allowed; allowed: ", absl::StrJoin(spec.allowed_values, ", ")));
}

absl::Status CheckIsGiven(const AttributeSpec& spec, absl::Span<const NamedAttribute> given) {
  const auto is_it = [&](const NamedAttribute& attribute) { return attribute.name == spec.name; };
  if (!spec.required || absl::c_any_of(given, is_it)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", spec.name, " is required and was not given: ", spec.summary));
}

absl::Status CheckInputCount(const Op& op, size_t given) {
  const size_t most = op.input_names.size();
  const size_t least = op.inputs_min == 0 ? most : op.inputs_min;
  if (given >= least && given <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      op.name, " takes ", least == most ? "" : absl::StrCat(least, " to "), most,
      most == 1 ? " input (" : " inputs (", absl::StrJoin(op.input_names, ", "), "), got ", given));
}

absl::Status ApplyAttribute(const Op& op, const NamedAttribute& given, AttributeValues* values) {
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    if (given.name != op.attributes[i].name) continue;
    RETURN_IF_ERROR(CheckAttributeValue(op.attributes[i], given.value));
    (*values)[i] = given.value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("attribute \"", given.name, "\" is unknown; ",
                                                 op.name, " has: ", AttributeNames(op)));
}

}  // namespace

int64_t TensorSpec::elements() const {
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim == 0) return 0;
    product *= dim;
  }
  return product;
}

size_t TensorSpec::bytes() const {
  return static_cast<size_t>(elements()) * ElementBytes(data_type);
}

absl::Status CheckTensorSpec(const TensorSpec& spec, absl::string_view label) {
  if (!absl::c_linear_search(kDataTypes, spec.data_type)) {
    return absl::InvalidArgumentError(absl::StrCat(
        label, ": data type ", static_cast<int>(spec.data_type),
        " is unknown; allowed: ", absl::StrJoin(kDataTypes, ", ", [](std::string* out, DataType t) {
          absl::StrAppend(out, DataTypeName(t));
        })));
  }
  if (spec.dims.empty() || spec.dims.size() > kRankMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": rank is ", spec.dims.size(), "; rank must be 1 to ", kRankMax));
  }
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    if (spec.dims[i] >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(label, ": dimension ", i, " is ", spec.dims[i],
                                                   "; dimensions must be 0 or more"));
  }
  int64_t bytes = static_cast<int64_t>(ElementBytes(spec.data_type));
  for (int64_t dim : spec.dims) {
    if (dim == 0 || !__builtin_mul_overflow(bytes, dim, &bytes)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        label, ": ", ToString(spec), " overflows; the bytes of its dimensions other than 0 must ",
        "not exceed ", std::numeric_limits<int64_t>::max()));
  }
  return absl::OkStatus();
}

std::string ToString(const TensorSpec& spec) {
  return absl::StrCat(DataTypeName(spec.data_type), "[", absl::StrJoin(spec.dims, ","), "]");
}

absl::StatusOr<AttributeValues> CompleteAttributes(const Op& op,
                                                   absl::Span<const NamedAttribute> given) {
  AttributeValues values;
  for (const AttributeSpec& spec : op.attributes) values.push_back(spec.default_value);
  for (size_t i = 0; i < given.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (given[i].name != given[j].name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("attribute \"", given[i].name, "\" is given more than once"));
    }
    RETURN_IF_ERROR(ApplyAttribute(op, given[i], &values));
  }
  for (const AttributeSpec& spec : op.attributes) RETURN_IF_ERROR(CheckIsGiven(spec, given));
  return values;
}

absl::StatusOr<Problem> MakeProblem(const Op& op, absl::Span<const TensorSpec> inputs,
                                    absl::Span<const NamedAttribute> attributes) {
  WARPCALL_DCHECK(op.infer_outputs != nullptr, op.name);
  RETURN_IF_ERROR(CheckInputCount(op, inputs.size()));
  Problem problem;
  for (size_t i = 0; i < inputs.size(); ++i) {
    RETURN_IF_ERROR(CheckTensorSpec(inputs[i], InputLabel(op, i)));
    problem.inputs.push_back(inputs[i]);
  }
  ASSIGN_OR_RETURN(problem.attributes, CompleteAttributes(op, attributes));
  RETURN_IF_ERROR(op.infer_outputs(&problem));
  WARPCALL_DCHECK(!problem.outputs.empty(), op.name);
  WARPCALL_DCHECK(problem.attributes.size() == op.attributes.size(), op.name);
  for (size_t i = 0; i < problem.outputs.size(); ++i) {
    RETURN_IF_ERROR(CheckTensorSpec(problem.outputs[i], absl::StrCat("output ", i)));
  }
  return problem;
}

std::string InputsToString(const Problem& problem) {
  return absl::StrJoin(problem.inputs, ", ", [](std::string* text, const TensorSpec& input) {
    absl::StrAppend(text, ToString(input));
  });
}

const char* FamilyName(Family family) {
  switch (family) {
    case Family::kReference:
      return "reference";
    case Family::kCpu:
      return "cpu";
    case Family::kManual:
      return "manual";
    case Family::kCuda:
      return "cuda";
    case Family::kTriton:
      return "triton";
    case Family::kCompiled:
      return "compiled";
    case Family::kLibrary:
      return "library";
    case Family::kPushed:
      return "pushed";
    case Family::kGraph:
      return "graph";
  }
  return "unknown";
}

absl::Status SupportsAll(const Problem&, const DeviceProperties&) { return absl::OkStatus(); }

}  // namespace warpcall
