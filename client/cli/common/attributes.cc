#include "client/cli/common/attributes.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/common/output.h"
#include "client/cli/common/suggest.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

using client::AttributeValue;

// Reads `text` as the type of its argument; the result says what form was expected.
struct ValueParser {
  absl::string_view text;

  absl::StatusOr<AttributeValue> operator()(bool) const {
    if (text == "true" || text == "1") return AttributeValue(true);
    if (text == "false" || text == "0") return AttributeValue(false);
    return absl::InvalidArgumentError("true or false");
  }
  absl::StatusOr<AttributeValue> operator()(int64_t) const {
    int64_t value;
    if (!absl::SimpleAtoi(text, &value)) return absl::InvalidArgumentError("an integer");
    return AttributeValue(value);
  }
  absl::StatusOr<AttributeValue> operator()(double) const {
    double value;
    if (!absl::SimpleAtod(text, &value)) return absl::InvalidArgumentError("a number");
    return AttributeValue(value);
  }
  absl::StatusOr<AttributeValue> operator()(const std::string&) const {
    return AttributeValue(std::string(text));
  }
};

// The value that says its type; null when the kernel is not listed.
absl::StatusOr<const AttributeValue*> FindDefault(const std::string& kernel,
                                                  const std::string& attribute,
                                                  absl::Span<const client::KernelInfo> kernels) {
  for (const client::KernelInfo& info : kernels) {
    if (info.name != kernel) continue;
    std::vector<std::string> names;
    for (const client::AttributeInfo& known : info.attributes) {
      if (known.name == attribute) return &known.default_value;
      names.push_back(known.name);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "attribute '", attribute, "' of ", kernel, " is unknown; there are: ",
        names.empty() ? "none" : absl::StrJoin(names, ", "), DidYouMean(attribute, names)));
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<AttributeMap> ParseAttributes(absl::Span<const std::string> texts,
                                             const std::string& kernel,
                                             absl::Span<const client::KernelInfo> kernels) {
  AttributeMap attributes;
  for (const std::string& text : texts) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const std::string& name = parts.first;
    if (name.empty() || name.size() == text.size())
      return absl::InvalidArgumentError(
          absl::StrCat("--attribute '", text, "' is not of the form name=value"));
    ASSIGN_OR_RETURN(const AttributeValue* type, FindDefault(kernel, name, kernels));
    const ValueParser parser{parts.second};
    absl::StatusOr<AttributeValue> value =
        type == nullptr ? parser(std::string()) : std::visit(parser, *type);
    if (!value.ok())
      return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' of ", kernel, " is ",
                                                     value.status().message(), ", not '",
                                                     parts.second, "'"));
    if (!attributes.emplace(name, *std::move(value)).second)
      return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' is given twice"));
  }
  return attributes;
}

std::string AttributeText(const AttributeValue& value) {
  const nlohmann::json text = ToJson(value);
  return text.is_string() ? text.get<std::string>() : text.dump();
}

bool BoolAttribute(const AttributeMap& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  const bool* value = found == attributes.end() ? nullptr : std::get_if<bool>(&found->second);
  return value != nullptr && *value;
}

}  // namespace warpcall::cli
