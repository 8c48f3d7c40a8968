#include "client/cli/common/catalog.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/common/output.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"
#include "proto/common/suggest.h"

namespace warpcall::cli {
namespace {

using client::AttributeValue;
using client::ImplementationInfo;
using client::KernelInfo;

// Short, since the answer only improves a message.
constexpr absl::Duration kExplainTimeout = absl::Seconds(2);
// Families of the public contract: a server may know one without listing it.
constexpr const char* kFamilies[] = {"cpu",     "cuda",   "triton",   "compiled",
                                     "library", "manual", "reference"};

void AddOnce(const std::string& name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

absl::Status Unknown(absl::string_view what, absl::string_view name,
                     const std::vector<std::string>& known) {
  return absl::NotFoundError(absl::StrCat(what, " \"", name, "\" is unknown; available: ",
                                          absl::StrJoin(known, ", "), DidYouMean(name, known)));
}

// Returns the implementation names of `kernel`, or of all kernels if `kernel` is empty.
std::vector<std::string> ImplementationNames(absl::Span<const KernelInfo> kernels,
                                             const std::string& kernel) {
  std::vector<std::string> names;
  for (const KernelInfo& info : kernels) {
    if (!kernel.empty() && info.name != kernel) continue;
    for (const ImplementationInfo& implementation : info.implementations) {
      AddOnce(implementation.name, &names);
      AddOnce(implementation.family, &names);
      for (const std::string& variant : implementation.variants)
        AddOnce(PinnedName(implementation.name, variant), &names);
    }
  }
  return names;
}

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

// Returns the attribute's default, which shows its type; null if the kernel is not listed.
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
        "attribute '", attribute, "' of ", kernel, " is unknown; available: ",
        names.empty() ? "none" : absl::StrJoin(names, ", "), DidYouMean(attribute, names)));
  }
  return nullptr;
}

}  // namespace

absl::Status CheckChoice(absl::Span<const KernelInfo> kernels, const Choice& choice) {
  std::vector<std::string> names;
  for (const KernelInfo& info : kernels) names.push_back(info.name);
  if (std::find(names.begin(), names.end(), choice.kernel) == names.end())
    return Unknown("kernel", choice.kernel, names);
  std::vector<std::string> known = ImplementationNames(kernels, "");
  if (known.empty()) return absl::OkStatus();
  known.insert(known.end(), std::begin(kFamilies), std::end(kFamilies));
  known.insert(known.end(), {"auto", ""});
  for (const KernelInfo& info : kernels) {
    for (const ImplementationInfo& implementation : info.implementations) {
      known.push_back(PinnedName(implementation.name, "*"));
      known.insert(known.end(), implementation.variants.begin(), implementation.variants.end());
    }
  }
  for (const std::string& implementation : choice.implementations)
    if (std::find(known.begin(), known.end(), implementation) == known.end())
      return Unknown(absl::StrCat("implementation of ", choice.kernel), implementation,
                     ImplementationNames(kernels, choice.kernel));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KernelInfo>> ListKernelsWith(const Choice& choice,
                                                        client::Client* client,
                                                        absl::Duration timeout) {
  ASSIGN_OR_RETURN(std::vector<KernelInfo> kernels, client->ListKernels(timeout));
  RETURN_IF_ERROR(CheckChoice(kernels, choice));
  return kernels;
}

absl::Status Explained(const absl::Status& refusal, const Choice& choice, client::Client* client) {
  if (!absl::IsNotFound(refusal)) return refusal;
  const auto kernels = client->ListKernels(kExplainTimeout);
  if (!kernels.ok()) return refusal;
  const absl::Status known = CheckChoice(*kernels, choice);
  return known.ok() ? refusal : known;
}

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
