#include "kernels/manifest/kernel_manifest.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/manifest/json_node.h"
#include "kernels/manifest/kernel_names.h"
#include "proto/common/status_macros.h"

namespace warpcall::manifest {
namespace {

constexpr size_t kJsonBytesMax = size_t{64} << 10;
constexpr size_t kNameCharactersMax = 63;
constexpr size_t kEntryCharactersMax = 256;
constexpr size_t kEntriesMax = 16;
constexpr size_t kArgumentsMax = 64;
constexpr size_t kListMax = 16;  // of options, requires and examples
constexpr size_t kOptionCharactersMax = 128;

constexpr absl::string_view kMembers[] = {
    "name",   "op",      "attributes", "types",    "inputs",   "code",         "args",
    "launch", "kernels", "scratch",    "requires", "examples", "scratch_zero", "deterministic"};

bool IsLower(char c) { return absl::ascii_islower(static_cast<unsigned char>(c)); }
bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Checks that all members of `node` are among `known`.
absl::Status CheckMembers(const JsonNode& node, absl::Span<const absl::string_view> known) {
  ASSIGN_OR_RETURN(const auto members, node.Members());
  for (const auto& [name, member] : members)
    if (!absl::c_linear_search(known, name))
      return member.Wrong(absl::StrCat("is unknown; known are ", absl::StrJoin(known, ", ")));
  return absl::OkStatus();
}

absl::Status CheckCount(const JsonNode& node, size_t count, size_t least, size_t most) {
  if (count >= least && count <= most) return absl::OkStatus();
  return node.Wrong(absl::StrCat("has ", count, " entries; it takes ", least, " to ", most));
}

absl::StatusOr<std::string> ReadName(const JsonNode& root) {
  ASSIGN_OR_RETURN(const JsonNode node, root.Member("name"));
  ASSIGN_OR_RETURN(std::string name, node.String());
  const bool is_right = !name.empty() && name.size() <= kNameCharactersMax && IsLower(name[0]) &&
                        absl::c_all_of(name, [](char c) {
                          return IsLower(c) || absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
                                 c == '_' || c == '-';
                        });
  if (!is_right) return node.Wrong("does not match [a-z][a-z0-9_-]{0,62}");
  return name;
}

// A value of the attribute's type; an integer stands for a double as well.
absl::StatusOr<AttributeValue> ReadValue(const JsonNode& node, const AttributeSpec& spec) {
  const Json& value = node.value();
  if (std::holds_alternative<bool>(spec.default_value) && value.is_boolean())
    return value.get<bool>();
  if (std::holds_alternative<int64_t>(spec.default_value) && value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}))
    return value.get<int64_t>();
  if (std::holds_alternative<double>(spec.default_value) && value.is_number())
    return value.get<double>();
  if (std::holds_alternative<std::string>(spec.default_value) && value.is_string())
    return value.get<std::string>();
  constexpr const char* kTypes[] = {"true or false", "an integer of 64 bits", "a number",
                                    "a string"};
  return node.Wrong(absl::StrCat("is not ", kTypes[spec.default_value.index()]));
}

absl::Status ReadAttributes(const JsonNode& root, KernelManifest* manifest) {
  if (root.Has("attributes")) {
    ASSIGN_OR_RETURN(const JsonNode node, root.Member("attributes"));
    ASSIGN_OR_RETURN(const auto members, node.Members());
    for (const auto& [name, member] : members) {
      const int attribute = FindAttribute(*manifest->op, absl::StrCat("attr.", name));
      if (attribute < 0)
        return member.Wrong(absl::StrCat("is no attribute of ", manifest->op->name));
      ASSIGN_OR_RETURN(AttributeValue value,
                       ReadValue(member, manifest->op->attributes[static_cast<size_t>(attribute)]));
      manifest->attributes.emplace_back(name, std::move(value));
    }
  }
  const absl::Status complete = CompleteAttributes(*manifest->op, AttributesOf(*manifest)).status();
  return complete.ok() ? complete : root.Wrong(absl::StrCat("attributes: ", complete.message()));
}

absl::Status ReadTypes(const JsonNode& root, KernelManifest* manifest) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> list, ListOf(root, "types"));
  ASSIGN_OR_RETURN(const JsonNode node, root.Member("types"));
  RETURN_IF_ERROR(CheckCount(node, list.size(), 1, kDataTypeCount));
  for (const JsonNode& each : list) {
    ASSIGN_OR_RETURN(const std::string name, each.String());
    const auto* const type =
        absl::c_find_if(kDataTypes, [&](DataType known) { return name == DataTypeName(known); });
    if (type == std::end(kDataTypes))
      return each.Wrong(absl::StrCat("is \"", name, "\"; known are float32, float16, bfloat16"));
    if (absl::c_linear_search(manifest->types, *type)) return each.Wrong("stands there twice");
    manifest->types.push_back(*type);
  }
  return absl::OkStatus();
}

// Returns true for options that read no file and write none.
bool IsAllowedOption(absl::string_view option) {
  for (const absl::string_view exact : {"-std=c++17", "-std=c++20", "--use_fast_math",
                                        "--fmad=true", "--fmad=false", "-lineinfo", "--restrict"})
    if (option == exact) return true;
  int registers = 0;
  if (absl::ConsumePrefix(&option, "--maxrregcount="))
    return absl::c_all_of(option, IsWordCharacter) && absl::SimpleAtoi(option, &registers) &&
           registers >= 1 && registers <= 255;
  if (!absl::ConsumePrefix(&option, "-D")) return false;
  const absl::string_view name = option.substr(0, option.find('='));
  return !name.empty() && absl::c_all_of(name, IsWordCharacter) &&
         absl::c_all_of(option,
                        [](char c) { return absl::ascii_isprint(static_cast<unsigned char>(c)); });
}

absl::StatusOr<std::string> ReadEntryName(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode member, node.Member("entry"));
  ASSIGN_OR_RETURN(std::string name, member.String());
  const bool is_right = !name.empty() && name.size() <= kEntryCharactersMax &&
                        !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
                        absl::c_all_of(name, [](char c) {
                          return IsWordCharacter(c) || absl::StrContains(":<>, ", c);
                        });
  if (!is_right) return member.Wrong("is no name of a kernel, such as softmax or softmax<T, 4>");
  return name;
}

class Reader {
 public:
  Reader(const JsonNode& root, KernelManifest* manifest) : root_(root), manifest_(*manifest) {}

  absl::Status Read() {
    RETURN_IF_ERROR(ReadAttributes(root_, &manifest_));
    RETURN_IF_ERROR(ReadTypes(root_, &manifest_));
    RETURN_IF_ERROR(ReadFlags());
    if (root_.Has("scratch")) {
      ASSIGN_OR_RETURN(const JsonNode node, root_.Member("scratch"));
      ASSIGN_OR_RETURN(manifest_.scratch, ReadExpression(node));
    }
    RETURN_IF_ERROR(ReadCode());
    RETURN_IF_ERROR(ReadRequirements());
    return ReadExamples();
  }

 private:
  // A number, or an expression.
  absl::StatusOr<IntegerExpression> ReadExpression(const JsonNode& node) const {
    std::string text;
    if (node.value().is_number_unsigned()) {
      text = absl::StrCat(node.value().get<uint64_t>());
    } else {
      ASSIGN_OR_RETURN(text, node.String());
    }
    return Parsed(node, IntegerExpression::Parse(text, is_name_));
  }

  absl::StatusOr<IntegerExpression> Parsed(const JsonNode& node,
                                           absl::StatusOr<IntegerExpression> parsed) const {
    if (parsed.ok()) return parsed;
    return node.Wrong(absl::StrCat(
        parsed.status().message(),
        met_unknown_name_
            ? absl::StrCat("; for ", manifest_.op->name, " these are ", NamesOf(*manifest_.op))
            : ""));
  }

  absl::Status ReadFlags() {
    if (root_.Has("inputs")) {
      ASSIGN_OR_RETURN(const JsonNode node, root_.Member("inputs"));
      ASSIGN_OR_RETURN(const std::string inputs, node.String());
      if (inputs != "any" && inputs != "finite")
        return node.Wrong(absl::StrCat("is \"", inputs, "\"; it takes any or finite"));
      manifest_.finite_inputs = inputs == "finite";
    }
    const std::pair<const char*, bool*> flags[] = {{"scratch_zero", &manifest_.scratch_zero},
                                                   {"deterministic", &manifest_.deterministic}};
    for (const auto& [name, flag] : flags) {
      if (!root_.Has(name)) continue;
      ASSIGN_OR_RETURN(const JsonNode node, root_.Member(name));
      ASSIGN_OR_RETURN(*flag, node.Bool());
    }
    return absl::OkStatus();
  }

  absl::Status ReadCode() {
    ASSIGN_OR_RETURN(const JsonNode code, root_.Member("code"));
    RETURN_IF_ERROR(CheckMembers(code, {"kind", "entry", "options"}));
    ASSIGN_OR_RETURN(const JsonNode kind, code.Member("kind"));
    ASSIGN_OR_RETURN(const std::string kind_text, kind.String());
    if (kind_text != "cuda")
      return kind.Wrong(absl::StrCat("is \"", kind_text, "\"; it takes cuda"));
    if (code.Has("options")) {
      ASSIGN_OR_RETURN(const std::vector<JsonNode> options, ListOf(code, "options"));
      RETURN_IF_ERROR(CheckCount(code, options.size(), 0, kListMax));
      for (const JsonNode& each : options) {
        ASSIGN_OR_RETURN(std::string option, each.String());
        if (option.size() > kOptionCharactersMax || !IsAllowedOption(option))
          return each.Wrong(absl::StrCat(
              "is \"", absl::CHexEscape(option.substr(0, kOptionCharactersMax)),
              "\", which is not allowed; allowed are -std=c++17, -std=c++20, -DNAME, -DNAME=VALUE, "
              "--use_fast_math, --fmad=, --maxrregcount=, -lineinfo and --restrict"));
        manifest_.options.push_back(std::move(option));
      }
    }
    if (root_.Has("kernels")) return ReadKernels(code);
    return ReadEntry(code, root_);
  }

  absl::Status ReadKernels(const JsonNode& code) {
    for (const char* const alone : {"args", "launch"})
      if (root_.Has(alone)) return root_.Wrong(absl::StrCat("has kernels, and ", alone, " beside"));
    if (code.Has("entry")) return code.Wrong("has an entry, and the manifest has kernels");
    ASSIGN_OR_RETURN(const JsonNode node, root_.Member("kernels"));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> kernels, node.List());
    RETURN_IF_ERROR(CheckCount(node, kernels.size(), 1, kEntriesMax));
    for (const JsonNode& each : kernels) {
      RETURN_IF_ERROR(CheckMembers(each, {"entry", "args", "launch"}));
      RETURN_IF_ERROR(ReadEntry(each, each));
    }
    return absl::OkStatus();
  }

  // `named` has the entry, `node` its args and launch.
  absl::Status ReadEntry(const JsonNode& named, const JsonNode& node) {
    KernelEntry entry;
    ASSIGN_OR_RETURN(entry.name, ReadEntryName(named));
    ASSIGN_OR_RETURN(const JsonNode args, node.Member("args"));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> list, args.List());
    RETURN_IF_ERROR(CheckCount(args, list.size(), 1, kArgumentsMax));
    for (const JsonNode& each : list) {
      ASSIGN_OR_RETURN(KernelArgument argument, ReadArgument(each));
      entry.arguments.push_back(std::move(argument));
    }
    ASSIGN_OR_RETURN(const JsonNode launch, node.Member("launch"));
    RETURN_IF_ERROR(CheckMembers(launch, {"grid", "block", "shared"}));
    ASSIGN_OR_RETURN(entry.grid, ReadSizes(launch, "grid"));
    ASSIGN_OR_RETURN(entry.block, ReadSizes(launch, "block"));
    if (launch.Has("shared")) {
      ASSIGN_OR_RETURN(const JsonNode shared, launch.Member("shared"));
      ASSIGN_OR_RETURN(entry.shared, ReadExpression(shared));
    }
    manifest_.entries.push_back(std::move(entry));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<IntegerExpression>> ReadSizes(const JsonNode& launch,
                                                           const char* name) const {
    ASSIGN_OR_RETURN(const JsonNode node, launch.Member(name));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> list, node.List());
    RETURN_IF_ERROR(CheckCount(node, list.size(), 1, 3));
    std::vector<IntegerExpression> sizes;
    for (const JsonNode& each : list) {
      ASSIGN_OR_RETURN(IntegerExpression size, ReadExpression(each));
      sizes.push_back(std::move(size));
    }
    return sizes;
  }

  absl::StatusOr<KernelArgument> ReadArgument(const JsonNode& node) const {
    KernelArgument argument;
    ASSIGN_OR_RETURN(argument.text, node.String());
    absl::string_view text = argument.text;
    if (absl::ConsumeSuffix(&text, ".ptr")) {
      argument.operand = text == "scratch" ? kScratchOperand : FindOperand(*manifest_.op, text);
      if (argument.operand == kScratchOperand && !manifest_.scratch.has_value())
        return node.Wrong("is scratch.ptr, and the manifest has no scratch");
      if (argument.operand == -1)
        return node.Wrong(absl::StrCat("names \"", text, "\", which is no operand of ",
                                       manifest_.op->name, ": ",
                                       absl::StrJoin(manifest_.op->input_names, ", "), ", y"));
      return argument;
    }
    const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
    using Type = KernelArgument::Type;
    constexpr std::pair<absl::string_view, Type> kTypes[] = {{"i32", Type::kInt32},
                                                             {"i64", Type::kInt64},
                                                             {"u32", Type::kUint32},
                                                             {"u64", Type::kUint64},
                                                             {"f32", Type::kFloat32}};
    const auto* const type = absl::c_find_if(
        kTypes, [&](const auto& known) { return parts.size() == 2 && known.first == parts[1]; });
    if (type == std::end(kTypes))
      return node.Wrong(absl::StrCat("is \"", text, "\"; it takes OPERAND.ptr, scratch.ptr, or ",
                                     "VALUE:TYPE with i32, i64, u32, u64 or f32"));
    argument.type = type->second;
    if (argument.type == Type::kFloat32) {
      if (const int found = FindAttribute(*manifest_.op, parts[0]);
          found >= 0 && std::holds_alternative<double>(
                            manifest_.op->attributes[static_cast<size_t>(found)].default_value)) {
        argument.attribute = found;
        return argument;
      }
      float number = 0;
      if (absl::SimpleAtof(parts[0], &number)) {
        argument.number = number;
        return argument;
      }
    }
    ASSIGN_OR_RETURN(argument.value, Parsed(node, IntegerExpression::Parse(parts[0], is_name_)));
    return argument;
  }

  absl::Status ReadRequirements() {
    if (!root_.Has("requires")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const JsonNode node, root_.Member("requires"));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> list, node.List());
    RETURN_IF_ERROR(CheckCount(node, list.size(), 0, kListMax));
    for (const JsonNode& each : list) {
      ASSIGN_OR_RETURN(const std::string text, each.String());
      ASSIGN_OR_RETURN(IntegerExpression condition,
                       Parsed(each, IntegerExpression::ParseCondition(text, is_name_)));
      manifest_.requirements.push_back(std::move(condition));
    }
    return absl::OkStatus();
  }

  absl::Status ReadExamples() {
    if (!root_.Has("examples")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const JsonNode node, root_.Member("examples"));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> list, node.List());
    RETURN_IF_ERROR(CheckCount(node, list.size(), 0, kListMax));
    for (const JsonNode& each : list) {
      ASSIGN_OR_RETURN(const std::vector<JsonNode> shapes, each.List());
      std::vector<TensorSpec> inputs;
      std::vector<Dims>& example = manifest_.examples.emplace_back();
      if (shapes.empty() || shapes.size() > manifest_.op->input_names.size())
        return each.Wrong(absl::StrCat(
            "has ", shapes.size(), " entries; it takes a shape for each of ",
            absl::StrJoin(manifest_.op->input_names, ", "), ", which is a list of sizes"));
      for (const JsonNode& shape : shapes) {
        ASSIGN_OR_RETURN(const std::vector<JsonNode> dims, shape.List());
        RETURN_IF_ERROR(CheckCount(shape, dims.size(), 1, kRankMax));
        Dims& read = example.emplace_back();
        for (const JsonNode& dim : dims) {
          ASSIGN_OR_RETURN(read.emplace_back(), dim.Count(std::numeric_limits<int64_t>::max()));
        }
        inputs.push_back({manifest_.types[0], read});
      }
      const absl::Status problem =
          MakeProblem(*manifest_.op, inputs, AttributesOf(manifest_)).status();
      if (!problem.ok()) return each.Wrong(absl::StrCat("is no problem: ", problem.message()));
    }
    return absl::OkStatus();
  }

  const JsonNode& root_;
  KernelManifest& manifest_;
  const std::function<bool(absl::string_view)> is_name_ = [this](absl::string_view name) {
    const bool is_known = IsName(*manifest_.op, name);
    met_unknown_name_ |= !is_known;
    return is_known;
  };
  bool met_unknown_name_ = false;  // then the manifest is refused
};

// "line 3, column 14, at "}"": where a parser stopped, which has read `bytes` bytes.
std::string PlaceOf(absl::string_view json, size_t bytes) {
  const size_t at = std::min(json.size(), std::max<size_t>(bytes, 1) - 1);
  const absl::string_view before = json.substr(0, at);
  const size_t line_begin = before.rfind('\n') + 1;  // of npos: 0
  return absl::StrCat(
      "line ", absl::c_count(before, '\n') + 1, ", column ", at - line_begin + 1,
      at == json.size() ? ", at its end" : absl::StrCat(", at \"", json.substr(at, 1), "\""));
}

}  // namespace

absl::StatusOr<KernelManifest> ReadKernelManifest(absl::string_view json, FindOp find_op) {
  if (json.size() > kJsonBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest has ", json.size(), " bytes; the limit is ", kJsonBytesMax));
  Json parsed;
  try {
    parsed = Json::parse(json.begin(), json.end());
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest is no JSON: ", PlaceOf(json, error.byte)));
  } catch (const Json::exception&) {  // a number that is too large
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest of ", json.size(), " bytes is no JSON"));
  }
  const JsonNode root(parsed, "the manifest: ");
  RETURN_IF_ERROR(CheckMembers(root, kMembers));
  KernelManifest manifest;
  ASSIGN_OR_RETURN(manifest.name, ReadName(root));
  ASSIGN_OR_RETURN(const JsonNode op, root.Member("op"));
  ASSIGN_OR_RETURN(const std::string op_name, op.String());
  manifest.op = find_op(op_name);
  if (manifest.op == nullptr)
    return op.Wrong(absl::StrCat("is \"", op_name,
                                 "\", which is no op of this server; "
                                 "`warpcall kernels` lists them"));
  RETURN_IF_ERROR(Reader(root, &manifest).Read());
  manifest.canonical = parsed.dump();
  return manifest;
}

std::vector<NamedAttribute> AttributesOf(const KernelManifest& manifest) {
  std::vector<NamedAttribute> attributes;
  for (const auto& [name, value] : manifest.attributes) attributes.push_back({name, value});
  return attributes;
}

}  // namespace warpcall::manifest
