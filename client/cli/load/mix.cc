#include "client/cli/load/mix.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/common/shape_sweep.h"
#include "proto/common/status_macros.h"
#include "warpcall/tensor.h"

namespace warpcall::cli {
namespace {

using absl::string_view;

absl::Status Invalid(string_view text, string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "': ", problem));
}

absl::StatusOr<Shape> ParseShape(string_view text) {
  Shape shape;
  for (string_view part : absl::StrSplit(text, 'x')) {
    const auto dimension = ParseDimension(part);
    if (!dimension.ok())
      return Invalid(text,
                     absl::StrCat("a shape is dimensions of 0 to ", INT64_MAX,
                                  " with x between them, such as 64x1024; '", part, "' is none"));
    shape.push_back(*dimension);
  }
  return shape;
}

// Splits at the commas outside square brackets.
std::vector<string_view> SplitEntries(string_view mix) {
  std::vector<string_view> entries;
  size_t begin = 0;
  bool in_brackets = false;
  for (size_t i = 0; i < mix.size(); ++i) {
    if (mix[i] == '[') in_brackets = true;
    if (mix[i] == ']') in_brackets = false;
    if (mix[i] != ',' || in_brackets) continue;
    entries.push_back(mix.substr(begin, i - begin));
    begin = i + 1;
  }
  entries.push_back(mix.substr(begin));
  return entries;
}

string_view NameOf(string_view option) { return option.substr(0, option.find('=')); }

absl::Status ParseOptions(string_view text, LoadEntry* entry) {
  for (string_view option : absl::StrSplit(text, ',')) {
    const string_view name = NameOf(option);
    if (name.empty() || name.size() == option.size())
      return Invalid(option, "an option in [] must have the form name=value");
    const std::string value(option.substr(name.size() + 1));
    if (name == "implementation") {
      entry->implementation = value;
    } else if (name == "device") {
      entry->device = value;
    } else {
      entry->attributes.emplace_back(option);
    }
  }
  return absl::OkStatus();
}

absl::Status ParseField(string_view field, LoadEntry* entry) {
  if (!field.empty() && absl::ascii_isdigit(static_cast<unsigned char>(field[0]))) {
    ASSIGN_OR_RETURN(entry->shapes, ParseShapes(field));
    return absl::OkStatus();
  }
  const auto type = ParseDataType(field);
  if (!type.ok())
    return Invalid(field, absl::StrCat("is neither a shape, such as 64x1024, nor a type: ",
                                       type.status().message()));
  entry->data_type = *type;
  return absl::OkStatus();
}

absl::Status ParseWeight(string_view text, LoadEntry* entry) {
  if (!absl::SimpleAtod(text, &entry->weight) ||
      !(entry->weight > 0 && entry->weight <= static_cast<double>(kWeightMax)))
    return Invalid(text, absl::StrCat("a weight is a number above 0 and at most ", kWeightMax));
  return absl::OkStatus();
}

// Parses the part of an entry after the kernel's name.
absl::Status ParseRest(string_view rest, LoadEntry* entry) {
  if (absl::ConsumePrefix(&rest, "[")) {
    const size_t end = rest.find(']');
    if (end == string_view::npos) return absl::InvalidArgumentError("'[' without ']'");
    RETURN_IF_ERROR(ParseOptions(rest.substr(0, end), entry));
    rest.remove_prefix(end + 1);
  }
  while (absl::ConsumePrefix(&rest, ":")) {
    const size_t end = std::min(rest.find_first_of(":="), rest.size());
    RETURN_IF_ERROR(ParseField(rest.substr(0, end), entry));
    rest.remove_prefix(end);
  }
  if (absl::ConsumePrefix(&rest, "=")) return ParseWeight(rest, entry);
  if (!rest.empty()) return Invalid(rest, "':', '=' or the end is expected here");
  return absl::OkStatus();
}

// Adds the attributes of `defaults` that `entry` does not set.
void AddAttributes(absl::Span<const std::string> defaults, LoadEntry* entry) {
  std::vector<std::string> missing;
  for (const std::string& attribute : defaults) {
    const auto same_name = [&](string_view own) { return NameOf(own) == NameOf(attribute); };
    if (std::none_of(entry->attributes.begin(), entry->attributes.end(), same_name))
      missing.push_back(attribute);
  }
  std::move(missing.begin(), missing.end(), std::back_inserter(entry->attributes));
}

absl::StatusOr<LoadEntry> ParseEntry(string_view text, const LoadEntry& defaults) {
  LoadEntry entry = defaults;
  entry.attributes.clear();
  const size_t end = std::min(text.find_first_of("[:="), text.size());
  entry.kernel = std::string(text.substr(0, end));
  if (entry.kernel.empty()) return absl::InvalidArgumentError("there is no kernel");
  RETURN_IF_ERROR(ParseRest(text.substr(end), &entry));
  if (entry.shapes.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("there is no shape: say ", entry.kernel, ":64x1024, or --shape for all"));
  AddAttributes(defaults.attributes, &entry);
  return entry;
}

}  // namespace

absl::StatusOr<Shapes> ParseShapes(string_view text) {
  Shapes shapes;
  for (string_view part : absl::StrSplit(text, '*')) {
    ASSIGN_OR_RETURN(Shape shape, ParseShape(part));
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

absl::StatusOr<std::vector<LoadEntry>> ParseMix(string_view mix, const LoadEntry& defaults) {
  const std::vector<string_view> texts = SplitEntries(mix);
  if (texts.size() > kMixEntriesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("the mix has ", texts.size(), " entries; there may be ", kMixEntriesMax));
  std::vector<LoadEntry> entries;
  for (string_view text : texts) {
    auto entry = ParseEntry(text, defaults);
    if (!entry.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("entry '", text, "' of the mix: ", entry.status().message()));
    entries.push_back(*std::move(entry));
  }
  return entries;
}

std::string EntryName(const LoadEntry& entry) {
  std::vector<std::string> options;
  if (!entry.implementation.empty())
    options.push_back(absl::StrCat("implementation=", entry.implementation));
  if (!entry.device.empty()) options.push_back(absl::StrCat("device=", entry.device));
  options.insert(options.end(), entry.attributes.begin(), entry.attributes.end());
  const auto append_shape = [](std::string* out, const std::vector<int64_t>& shape) {
    absl::StrAppend(out, absl::StrJoin(shape, "x"));
  };
  return absl::StrCat(entry.kernel, options.empty() ? "" : "[", absl::StrJoin(options, ","),
                      options.empty() ? ":" : "]:", absl::StrJoin(entry.shapes, "*", append_shape),
                      ":", DataTypeName(entry.data_type));
}

absl::Status FitToKernel(absl::Span<const client::KernelInfo> kernels, LoadEntry* entry) {
  const auto kernel =
      std::find_if(kernels.begin(), kernels.end(),
                   [&](const client::KernelInfo& info) { return info.name == entry->kernel; });
  if (kernel != kernels.end()) {
    const size_t inputs = kernel->input_names.size();
    const size_t given = entry->shapes.size();
    // A variadic kernel needs a shape for each input.
    const bool may_have_fewer =
        kernel->inputs_min > 0 && given >= static_cast<size_t>(kernel->inputs_min);
    const bool serves_all = !HasWeights(*kernel) || entry->shapes[0].size() == 1;
    if (given == 1 && !may_have_fewer && serves_all) entry->shapes.resize(inputs, entry->shapes[0]);
    if (entry->shapes.size() != inputs && !(may_have_fewer && given < inputs))
      return Invalid(EntryName(*entry),
                     absl::StrCat(given, given == 1 ? " shape" : " shapes", ", but ", entry->kernel,
                                  " takes ", inputs, ": ", absl::StrJoin(kernel->input_names, ", "),
                                  ", with * between them"));
  }
  int64_t total_bytes = 0;
  for (const std::vector<int64_t>& shape : entry->shapes) {
    ASSIGN_OR_RETURN(const int64_t bytes, client::ByteCount(entry->data_type, shape));
    if (bytes > kRequestBytesMax - total_bytes)
      return Invalid(EntryName(*entry),
                     absl::StrCat("an input of ", bytes, " bytes, after ", total_bytes,
                                  " bytes of others; a request holds at most ", kRequestBytesMax));
    total_bytes += bytes;
  }
  return absl::OkStatus();
}

}  // namespace warpcall::cli
