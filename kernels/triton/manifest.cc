#include "kernels/triton/manifest.h"

#include <elf.h>

#include <cstring>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/manifest/json_node.h"
#include "proto/common/status_macros.h"

namespace warpcall::triton {
namespace {

using manifest::CountOf;
using manifest::IntegerExpression;
using manifest::Json;
using manifest::JsonNode;
using manifest::ListOf;
using manifest::StringOf;
using manifest::StringsOf;

constexpr int64_t kFormat = 1;
constexpr int64_t kThreadsMax = 1024;
constexpr int64_t kSharedBytesMax = 1 << 20;
constexpr size_t kGridRankMax = 3;
constexpr size_t kScratchKinds = 2;
constexpr Elf64_Half kElfMachineCuda = 190;  // EM_CUDA, which Debian's elf.h lacks

absl::StatusOr<std::vector<int64_t>> CountsOf(const JsonNode& node, const char* name) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> list, ListOf(node, name));
  std::vector<int64_t> counts;
  for (const JsonNode& each : list) {
    ASSIGN_OR_RETURN(const int64_t count, each.Count(std::numeric_limits<int64_t>::max()));
    counts.push_back(count);
  }
  return counts;
}

absl::StatusOr<DataType> DataTypeOf(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode member, node.Member("data_type"));
  ASSIGN_OR_RETURN(const std::string name, member.String());
  for (const DataType type : kDataTypes)
    if (name == DataTypeName(type)) return type;
  return member.Wrong(absl::StrCat("\"", name, "\" is no data type"));
}

absl::StatusOr<Argument> ReadArgument(const JsonNode& node) {
  Argument argument;
  ASSIGN_OR_RETURN(argument.name, StringOf(node, "name"));
  ASSIGN_OR_RETURN(const std::string type, StringOf(node, "type"));
  if (type == "pointer") {
    argument.type = Argument::Type::kPointer;
  } else if (type == "i32") {
    argument.type = Argument::Type::kInt32;
  } else if (type == "i64") {
    argument.type = Argument::Type::kInt64;
  } else if (type == "fp32") {
    argument.type = Argument::Type::kFloat32;
  } else {
    return node.Wrong(
        absl::StrCat("has type \"", type, "\"; known are pointer, i32, i64 and fp32"));
  }
  const int64_t divisor_max = argument.type == Argument::Type::kFloat32 ? 1 : 256;
  ASSIGN_OR_RETURN(argument.divisible_by, CountOf(node, "divisible_by", divisor_max));
  if (argument.divisible_by == 0) return node.Wrong("is to be divisible by 0");
  return argument;
}

// Returns true for an ELF file for GPUs that ends where its headers say. The runtime, which gets no
// length, would read a shorter file beyond its end.
bool IsWholeCubin(absl::string_view cubin) {
  Elf64_Ehdr header;
  if (cubin.size() < sizeof(header)) return false;
  std::memcpy(&header, cubin.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kElfMachineCuda) return false;
  const uint64_t sections = uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > cubin.size() ||
      sections > cubin.size() - header.e_shoff)
    return false;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, cubin.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type == SHT_NOBITS) continue;
    if (section.sh_offset > cubin.size() || section.sh_size > cubin.size() - section.sh_offset)
      return false;
  }
  return true;
}

size_t BytesOf(Argument::Type type) {
  switch (type) {
    case Argument::Type::kInt32:
      return sizeof(int32_t);
    case Argument::Type::kInt64:
      return sizeof(int64_t);
    case Argument::Type::kFloat32:
      return sizeof(float);
    case Argument::Type::kPointer:
      break;
  }
  return sizeof(void*);
}

// The arguments are the first parameters, and nothing but scratch memory follows them.
absl::Status CheckParameters(const JsonNode& node, absl::Span<const Argument> arguments,
                             absl::Span<const size_t> parameter_bytes) {
  if (parameter_bytes.size() < arguments.size() ||
      parameter_bytes.size() > arguments.size() + kHiddenMax)
    return node.Wrong(absl::StrCat("has ", parameter_bytes.size(), " parameters for ",
                                   arguments.size(), " arguments; at most ", kHiddenMax,
                                   " may be hidden"));
  for (size_t i = 0; i < parameter_bytes.size(); ++i) {
    const size_t expected = i < arguments.size() ? BytesOf(arguments[i].type) : sizeof(void*);
    if (parameter_bytes[i] != expected)
      return node.Wrong(absl::StrCat("has a parameter ", i, " of ", parameter_bytes[i],
                                     " bytes; expected are ", expected));
  }
  return absl::OkStatus();
}

absl::StatusOr<Image> ReadImage(const JsonNode& node, absl::Span<const Argument> arguments,
                                absl::string_view cubins) {
  Image image;
  ASSIGN_OR_RETURN(const int64_t architecture, CountOf(node, "architecture", 999));
  image.architecture = static_cast<int32_t>(architecture);
  ASSIGN_OR_RETURN(image.entry, StringOf(node, "entry"));
  ASSIGN_OR_RETURN(const int64_t threads, CountOf(node, "threads", kThreadsMax));
  if (threads == 0) return node.Wrong("has blocks without threads");
  image.threads = static_cast<int32_t>(threads);
  ASSIGN_OR_RETURN(const int64_t shared_bytes, CountOf(node, "shared_bytes", kSharedBytesMax));
  image.shared_bytes = static_cast<size_t>(shared_bytes);
  ASSIGN_OR_RETURN(const std::vector<int64_t> parameters, CountsOf(node, "parameter_bytes"));
  image.parameter_bytes.assign(parameters.begin(), parameters.end());
  RETURN_IF_ERROR(CheckParameters(node, arguments, image.parameter_bytes));
  ASSIGN_OR_RETURN(const std::vector<int64_t> scratch, CountsOf(node, "scratch_bytes"));
  if (scratch != std::vector<int64_t>(kScratchKinds, 0))
    return node.Wrong("needs scratch memory, which no row gives it");
  const auto all = static_cast<int64_t>(cubins.size());
  ASSIGN_OR_RETURN(const int64_t offset, CountOf(node, "offset", all));
  ASSIGN_OR_RETURN(const int64_t bytes, CountOf(node, "bytes", all - offset));
  image.cubin = cubins.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  if (!IsWholeCubin(image.cubin)) return node.Wrong("is no whole cubin");
  return image;
}

std::vector<std::string> NamesOf(const CompiledKernel& kernel) {
  std::vector<std::string> names = kernel.given;
  for (const auto& [name, value] : kernel.constants) names.push_back(name);
  for (const Argument& argument : kernel.arguments)
    if (IsInteger(argument)) names.push_back(argument.name);
  return names;
}

// `parse` is IntegerExpression::Parse or ParseCondition.
absl::StatusOr<std::vector<IntegerExpression>> ExpressionsOf(
    const JsonNode& node, const char* name, absl::Span<const std::string> names,
    decltype(IntegerExpression::Parse)* parse) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> list, ListOf(node, name));
  std::vector<IntegerExpression> expressions;
  for (const JsonNode& each : list) {
    ASSIGN_OR_RETURN(const std::string text, each.String());
    absl::StatusOr<IntegerExpression> expression =
        parse(text, [&](absl::string_view known) { return absl::c_linear_search(names, known); });
    if (!expression.ok()) return each.Wrong(expression.status().message());
    expressions.push_back(*std::move(expression));
  }
  return expressions;
}

absl::Status ReadNames(const JsonNode& node, CompiledKernel* kernel) {
  ASSIGN_OR_RETURN(kernel->variant, StringOf(node, "variant"));
  ASSIGN_OR_RETURN(kernel->tile, StringOf(node, "tile"));
  ASSIGN_OR_RETURN(const JsonNode traits, node.Member("traits"));
  ASSIGN_OR_RETURN(const auto trait_members, traits.Members());
  for (const auto& [name, member] : trait_members) {
    ASSIGN_OR_RETURN(std::string value, member.String());
    kernel->traits.emplace_back(name, std::move(value));
  }
  ASSIGN_OR_RETURN(const JsonNode constants, node.Member("constants"));
  ASSIGN_OR_RETURN(const auto constant_members, constants.Members());
  for (const auto& [name, member] : constant_members) {
    ASSIGN_OR_RETURN(const int64_t value, member.Count(std::numeric_limits<int32_t>::max()));
    kernel->constants.emplace_back(name, value);
  }
  ASSIGN_OR_RETURN(kernel->given, StringsOf(node, "given"));
  return absl::OkStatus();
}

absl::StatusOr<CompiledKernel> ReadKernel(const JsonNode& node, absl::string_view cubins) {
  CompiledKernel kernel;
  RETURN_IF_ERROR(ReadNames(node, &kernel));
  ASSIGN_OR_RETURN(const std::vector<JsonNode> arguments, ListOf(node, "arguments"));
  for (const JsonNode& each : arguments) {
    ASSIGN_OR_RETURN(Argument argument, ReadArgument(each));
    kernel.arguments.push_back(std::move(argument));
  }
  const std::vector<std::string> names = NamesOf(kernel);
  ASSIGN_OR_RETURN(kernel.grid, ExpressionsOf(node, "grid", names, IntegerExpression::Parse));
  if (kernel.grid.empty() || kernel.grid.size() > kGridRankMax)
    return node.Wrong(absl::StrCat("has a grid of ", kernel.grid.size(), " dimensions"));
  ASSIGN_OR_RETURN(kernel.requirements,
                   ExpressionsOf(node, "requires", names, IntegerExpression::ParseCondition));
  ASSIGN_OR_RETURN(const std::vector<JsonNode> images, ListOf(node, "images"));
  for (const JsonNode& each : images) {
    ASSIGN_OR_RETURN(Image image, ReadImage(each, kernel.arguments, cubins));
    kernel.images.push_back(std::move(image));
  }
  return kernel;
}

absl::StatusOr<Choice> ReadChoice(const JsonNode& node) {
  Choice choice;
  ASSIGN_OR_RETURN(choice.sizes, CountsOf(node, "sizes"));
  if (absl::c_linear_search(choice.sizes, 0)) return node.Wrong("has a size of 0");
  ASSIGN_OR_RETURN(choice.tile, StringOf(node, "tile"));
  return choice;
}

// The set of the op and data type that an entry of the manifest is for.
absl::StatusOr<KernelSet*> SetOf(const JsonNode& node, Manifest* manifest) {
  ASSIGN_OR_RETURN(std::string op, StringOf(node, "op"));
  ASSIGN_OR_RETURN(const DataType type, DataTypeOf(node));
  for (KernelSet& set : manifest->sets)
    if (set.op == op && set.data_type == type) return &set;
  manifest->sets.push_back({.op = std::move(op), .data_type = type, .kernels = {}, .choices = {}});
  return &manifest->sets.back();
}

}  // namespace

const KernelSet* Manifest::Find(absl::string_view op, DataType data_type) const {
  const auto set = absl::c_find_if(
      sets, [&](const KernelSet& each) { return each.data_type == data_type && each.op == op; });
  return set == sets.end() ? nullptr : &*set;
}

absl::StatusOr<Manifest> ReadManifest(absl::string_view json, absl::string_view cubins) {
  const Json parsed = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded())
    return absl::InvalidArgumentError(
        absl::StrCat("the kernels' manifest of ", json.size(), " bytes is no JSON"));
  const JsonNode root(parsed, "the kernels' manifest: ");
  ASSIGN_OR_RETURN(const int64_t format, CountOf(root, "format", kFormat));
  if (format != kFormat) return root.Wrong(absl::StrCat("has format ", format));
  Manifest manifest;
  if (parsed.contains("unavailable")) {
    ASSIGN_OR_RETURN(manifest.unavailable, StringOf(root, "unavailable"));
    return manifest;
  }
  ASSIGN_OR_RETURN(const std::vector<JsonNode> kernels, ListOf(root, "kernels"));
  for (const JsonNode& node : kernels) {
    ASSIGN_OR_RETURN(KernelSet* const set, SetOf(node, &manifest));
    ASSIGN_OR_RETURN(CompiledKernel kernel, ReadKernel(node, cubins));
    set->kernels.push_back(std::move(kernel));
  }
  ASSIGN_OR_RETURN(const std::vector<JsonNode> choices, ListOf(root, "choices"));
  for (const JsonNode& node : choices) {
    ASSIGN_OR_RETURN(KernelSet* const set, SetOf(node, &manifest));
    ASSIGN_OR_RETURN(Choice choice, ReadChoice(node));
    set->choices.push_back(std::move(choice));
  }
  return manifest;
}

}  // namespace warpcall::triton
