#include "client/cli/common/graph_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/common/input_file.h"
#include "client/cli/common/options.h"
#include "proto/common/status_macros.h"
#include "proto/common/suggest.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr size_t kGraphBytesMax = size_t{1} << 20;

absl::Status Invalid(absl::string_view place, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", problem));
}

// "line 3, column 5", of the byte with this number, the first being 1.
std::string LineAndColumn(absl::string_view text, size_t byte) {
  const absl::string_view before = text.substr(0, std::max<size_t>(byte, 1) - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == absl::string_view::npos ? 0 : newline + 1) + 1;
  return absl::StrCat("line ", line, ", column ", column);
}

// An object of the file, whose keys are all known.
class Object {
 public:
  static absl::StatusOr<Object> Of(const json& value, std::string place,
                                   const std::vector<std::string>& keys) {
    if (!value.is_object())
      return Invalid(place, absl::StrCat("it is a JSON ", value.type_name(), ", not an object"));
    for (const auto& [key, ignored] : value.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        return Invalid(place, absl::StrCat("unknown key \"", key, "\"", DidYouMean(key, keys)));
    return Object(&value, std::move(place));
  }

  // An absent key gives an empty value, unless it is required.
  absl::StatusOr<std::string> Text(const std::string& key, bool required = false) const {
    ASSIGN_OR_RETURN(const json* value, Find(key, json::value_t::string, required));
    return value == nullptr ? std::string() : value->get<std::string>();
  }
  absl::StatusOr<bool> Bool(const std::string& key) const {
    ASSIGN_OR_RETURN(const json* value, Find(key, json::value_t::boolean, /*required=*/false));
    return value != nullptr && value->get<bool>();
  }
  // Null if it is absent.
  absl::StatusOr<const json*> Find(const std::string& key, json::value_t type,
                                   bool required) const {
    const auto found = value_->find(key);
    if (found == value_->end()) {
      if (!required) return nullptr;
      return Invalid(place_, absl::StrCat("\"", key, "\" is missing"));
    }
    if (found->type() == type) return &*found;
    return Invalid(place_, absl::StrCat("\"", key, "\" is a JSON ", found->type_name(), ", not a",
                                        type == json::value_t::array    ? "n array"
                                        : type == json::value_t::object ? "n object"
                                        : type == json::value_t::string ? " string"
                                                                        : " boolean"));
  }
  const std::string& place() const { return place_; }

 private:
  Object(const json* value, std::string place) : value_(value), place_(std::move(place)) {}

  const json* value_;
  std::string place_;
};

absl::StatusOr<client::AttributeValue> AttributeOf(const std::string& name, const json& value,
                                                   const std::string& place) {
  if (value.is_boolean()) return client::AttributeValue(value.get<bool>());
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
    return Invalid(place, absl::StrCat("attribute \"", name, "\" is ", value.dump(),
                                       "; it must fit into 64 bits"));
  if (value.is_number_integer()) return client::AttributeValue(value.get<int64_t>());
  if (value.is_number_float()) return client::AttributeValue(value.get<double>());
  if (value.is_string()) return client::AttributeValue(value.get<std::string>());
  return Invalid(place, absl::StrCat("attribute \"", name, "\" is a JSON ", value.type_name(),
                                     "; it must be a boolean, number or string"));
}

absl::StatusOr<client::GraphStep> StepOf(const json& value, const std::string& place) {
  ASSIGN_OR_RETURN(
      const Object object,
      Object::Of(value, place, {"name", "kernel", "implementation", "inputs", "attributes"}));
  client::GraphStep step;
  ASSIGN_OR_RETURN(step.name, object.Text("name", /*required=*/true));
  ASSIGN_OR_RETURN(step.kernel, object.Text("kernel", /*required=*/true));
  ASSIGN_OR_RETURN(step.implementation, object.Text("implementation"));
  ASSIGN_OR_RETURN(const json* inputs,
                   object.Find("inputs", json::value_t::array, /*required=*/true));
  for (const json& input : *inputs) {
    if (!input.is_string())
      return Invalid(place, absl::StrCat("an input is a JSON ", input.type_name(),
                                         "; it must be the name of an input or a step"));
    step.inputs.push_back(input.get<std::string>());
  }
  ASSIGN_OR_RETURN(const json* attributes,
                   object.Find("attributes", json::value_t::object, /*required=*/false));
  if (attributes == nullptr) return step;
  for (const auto& [name, attribute] : attributes->items()) {
    ASSIGN_OR_RETURN(step.attributes[name], AttributeOf(name, attribute, place));
  }
  return step;
}

absl::StatusOr<client::GraphOutput> OutputOf(const json& value, const std::string& place) {
  client::GraphOutput output;
  if (value.is_string()) {
    output.name = value.get<std::string>();
    return output;
  }
  ASSIGN_OR_RETURN(const Object object, Object::Of(value, place, {"name", "keep", "ttl", "label"}));
  ASSIGN_OR_RETURN(output.name, object.Text("name", /*required=*/true));
  ASSIGN_OR_RETURN(output.keep, object.Bool("keep"));
  ASSIGN_OR_RETURN(const std::string ttl, object.Text("ttl"));
  ASSIGN_OR_RETURN(output.label, object.Text("label"));
  if (!output.keep && (!ttl.empty() || !output.label.empty()))
    return Invalid(place, "\"ttl\" and \"label\" are for an output with \"keep\": true");
  if (!ttl.empty()) {
    ASSIGN_OR_RETURN(output.ttl, ParseTtl(absl::StrCat(place, ": \"ttl\""), ttl));
  }
  return output;
}

// Names that steps read but that are not a step's own name.
std::vector<std::string> InputsOf(const std::vector<client::GraphStep>& steps) {
  std::vector<std::string> inputs;
  for (const client::GraphStep& step : steps) {
    for (const std::string& name : step.inputs) {
      const auto is_named = [&](const client::GraphStep& other) { return other.name == name; };
      if (std::none_of(steps.begin(), steps.end(), is_named) &&
          std::find(inputs.begin(), inputs.end(), name) == inputs.end())
        inputs.push_back(name);
    }
  }
  return inputs;
}

std::string Quoted(const std::string& name) { return absl::StrCat("\"", name, "\""); }

}  // namespace

absl::StatusOr<GraphFile> ReadGraphFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kGraphBytesMax));
  json value;
  try {
    value = json::parse(text);
  } catch (const json::parse_error& error) {
    return Invalid(path, absl::StrCat("invalid JSON at ", LineAndColumn(text, error.byte)));
  }
  ASSIGN_OR_RETURN(const Object object, Object::Of(value, path, {"steps", "outputs"}));
  ASSIGN_OR_RETURN(const json* steps, object.Find("steps", json::value_t::array, true));
  ASSIGN_OR_RETURN(const json* outputs, object.Find("outputs", json::value_t::array, true));
  GraphFile graph;
  for (const json& each : *steps) {
    ASSIGN_OR_RETURN(client::GraphStep step,
                     StepOf(each, absl::StrCat(path, ": steps[", graph.steps.size(), "]")));
    graph.steps.push_back(std::move(step));
  }
  for (const json& each : *outputs) {
    ASSIGN_OR_RETURN(client::GraphOutput output,
                     OutputOf(each, absl::StrCat(path, ": outputs[", graph.outputs.size(), "]")));
    graph.outputs.push_back(std::move(output));
  }
  graph.inputs = InputsOf(graph.steps);
  return graph;
}

absl::StatusOr<std::vector<std::string>> FilesByName(const std::string& what,
                                                     const std::vector<std::string>& texts,
                                                     const std::vector<std::string>& names) {
  std::vector<std::string> files(names.size());
  for (const std::string& text : texts) {
    const size_t end = text.find('=');
    const bool has_name = end != std::string::npos;
    if (!has_name && names.size() != 1)
      return absl::InvalidArgumentError(
          absl::StrCat("--", what, " ", text, ": it must be NAME=", text, "; ", what,
                       "s of the graph: ", absl::StrJoin(names, ", ")));
    const std::string name = has_name ? text.substr(0, end) : names.front();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      return absl::InvalidArgumentError(
          absl::StrCat("--", what, " ", text, ": the graph has no ", what, " ", Quoted(name),
                       names.empty() ? "" : absl::StrCat("; it has ", absl::StrJoin(names, ", "))));
    std::string& file = files[static_cast<size_t>(found - names.begin())];
    if (!file.empty())
      return absl::InvalidArgumentError(absl::StrCat("--", what, " ", name, " is given twice"));
    file = has_name ? text.substr(end + 1) : text;
    if (file.empty())
      return absl::InvalidArgumentError(absl::StrCat("--", what, " ", text, " names no file"));
  }
  return files;
}

absl::StatusOr<std::vector<client::GraphInput>> ReadGraphInputs(
    const GraphFile& graph, const std::vector<std::string>& texts, const InputReading& reading) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesByName("input", texts, graph.inputs));
  for (size_t i = 0; i < files.size(); ++i)
    if (files[i].empty())
      return absl::InvalidArgumentError(
          absl::StrCat("input ", Quoted(graph.inputs[i]), " has no file: give it by --input ",
                       graph.inputs[i], "=FILE or --input ", graph.inputs[i], "=@HANDLE"));
  ASSIGN_OR_RETURN(std::vector<client::Tensor> tensors, ReadInputs(files, reading));
  std::vector<client::GraphInput> inputs;
  for (size_t i = 0; i < tensors.size(); ++i)
    inputs.push_back({graph.inputs[i], std::move(tensors[i])});
  return inputs;
}

}  // namespace warpcall::cli
