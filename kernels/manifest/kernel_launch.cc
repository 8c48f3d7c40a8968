// A manifest's launches for a problem on a device.
#include <cstring>
#include <limits>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/manifest/kernel_names.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::manifest {
namespace {

// CUDA's limits of a launch.
constexpr int64_t kGridMax[] = {0x7FFFFFFF, 65535, 65535};
constexpr int64_t kBlockMax[] = {1024, 1024, 64};
constexpr int64_t kThreadsMax = 1024;
constexpr int64_t kScratchBytesMax = int64_t{1} << 40;

absl::Status Wrong(absl::string_view member, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(member, ": ", what));
}

class Launcher {
 public:
  Launcher(const KernelManifest& manifest, const Problem& problem, const DeviceProperties& device)
      : device_(device), named_{*manifest.op, problem, device} {}

  // Returns the expression's value, or an error unless it is from `least` to `most`.
  absl::StatusOr<int64_t> Evaluate(absl::string_view member, const IntegerExpression& expression,
                                   int64_t least, int64_t most) const {
    const absl::StatusOr<int64_t> value =
        expression.Evaluate([&](absl::string_view name) { return named_.ValueOf(name); });
    if (!value.ok()) return Wrong(member, value.status().message());
    if (*value >= least && *value <= most) return *value;
    return Wrong(member, absl::StrCat("\"", expression.text(), "\" is ", *value, "; it takes ",
                                      least, " to ", most));
  }

  absl::StatusOr<KernelLaunch> LaunchOf(const KernelEntry& entry) const {
    KernelLaunch launch;
    RETURN_IF_ERROR(Sizes("launch.grid", entry.grid, kGridMax, launch.grid));
    RETURN_IF_ERROR(Sizes("launch.block", entry.block, kBlockMax, launch.block));
    const int64_t threads = int64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    if (threads > kThreadsMax)
      return Wrong("launch.block",
                   absl::StrCat("a block has ", threads, " threads; the limit is ", kThreadsMax));
    if (entry.shared.has_value()) {
      ASSIGN_OR_RETURN(const int64_t shared, Evaluate("launch.shared", *entry.shared, 0,
                                                      device_.shared_memory_per_block_bytes));
      launch.shared_bytes = static_cast<uint32_t>(shared);
    }
    for (const KernelArgument& argument : entry.arguments) {
      ASSIGN_OR_RETURN(Parameter parameter, ParameterOf(argument));
      launch.parameters.push_back(parameter);
    }
    return launch;
  }

 private:
  absl::Status Sizes(absl::string_view member, absl::Span<const IntegerExpression> expressions,
                     absl::Span<const int64_t> most, uint32_t* sizes) const {
    for (size_t i = 0; i < expressions.size(); ++i) {
      ASSIGN_OR_RETURN(const int64_t size,
                       Evaluate(absl::StrCat(member, "[", i, "]"), expressions[i], 1, most[i]));
      sizes[i] = static_cast<uint32_t>(size);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Parameter> ParameterOf(const KernelArgument& argument) const {
    switch (argument.type) {
      case KernelArgument::Type::kPointer:
        return Pointer(argument);
      case KernelArgument::Type::kInt32:
        return Integer<int32_t>(argument);
      case KernelArgument::Type::kInt64:
        return Integer<int64_t>(argument);
      case KernelArgument::Type::kUint32:
        return Integer<uint32_t>(argument);
      case KernelArgument::Type::kUint64:
        return Integer<uint64_t>(argument);
      case KernelArgument::Type::kFloat32:
        break;
    }
    return Float(argument);
  }

  absl::StatusOr<Parameter> Pointer(const KernelArgument& argument) const {
    const auto inputs = static_cast<int>(named_.problem.inputs.size());
    const bool is_input =
        argument.operand >= 0 && argument.operand < static_cast<int>(named_.op.input_names.size());
    if (is_input && argument.operand >= inputs)
      return Wrong(argument.text, absl::StrCat("the problem has ", inputs, " inputs"));
    // The output follows the inputs that the problem has.
    return Parameter{.bytes = sizeof(void*),
                     .operand = is_input || argument.operand < 0 ? argument.operand : inputs};
  }

  template <typename Int>
  absl::StatusOr<Parameter> Integer(const KernelArgument& argument) const {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    constexpr int64_t kTypesMost = sizeof(Int) < sizeof(int64_t)
                                       ? static_cast<int64_t>(std::numeric_limits<Int>::max())
                                       : kMost;
    ASSIGN_OR_RETURN(const int64_t value,
                     Evaluate(argument.text, *argument.value,
                              static_cast<int64_t>(std::numeric_limits<Int>::min()), kTypesMost));
    const Int typed = static_cast<Int>(value);
    return Bits(&typed, sizeof(typed));
  }

  absl::StatusOr<Parameter> Float(const KernelArgument& argument) const {
    float value = 0;
    if (argument.number.has_value()) {
      value = *argument.number;
    } else if (argument.attribute >= 0) {
      value = static_cast<float>(
          std::get<double>(named_.problem.attributes[static_cast<size_t>(argument.attribute)]));
    } else {
      ASSIGN_OR_RETURN(const int64_t integer,
                       Evaluate(argument.text, *argument.value, std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()));
      value = static_cast<float>(integer);
    }
    return Bits(&value, sizeof(value));
  }

  static Parameter Bits(const void* value, size_t bytes) {
    Parameter parameter{.bytes = bytes};
    std::memcpy(&parameter.bits, value, bytes);
    return parameter;
  }

  const DeviceProperties& device_;
  const NamedProblem named_;
};

std::string TextOf(const AttributeValue& value) {
  return std::visit(
      [](const auto& each) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(each)>, bool>)
          return each ? "true" : "false";
        else
          return absl::StrCat(each);
      },
      value);
}

}  // namespace

absl::Status CheckTaken(const KernelManifest& manifest, const Problem& problem,
                        const DeviceProperties& device) {
  const Op& op = *manifest.op;
  if (!absl::c_linear_search(manifest.types, problem.inputs[0].data_type))
    return Wrong("types",
                 absl::StrCat("the kernel is not for ", DataTypeName(problem.inputs[0].data_type)));
  ASSIGN_OR_RETURN(const AttributeValues values, CompleteAttributes(op, AttributesOf(manifest)));
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != problem.attributes[i])
      return Wrong("attributes",
                   absl::StrCat("the kernel is for ", op.attributes[i].name, "=", TextOf(values[i]),
                                ", the problem has ", TextOf(problem.attributes[i])));
  const Launcher launcher(manifest, problem, device);
  for (size_t i = 0; i < manifest.requirements.size(); ++i) {
    const IntegerExpression& requirement = manifest.requirements[i];
    ASSIGN_OR_RETURN(const int64_t holds,
                     launcher.Evaluate(absl::StrCat("requires[", i, "]"), requirement, 0, 1));
    if (holds == 0)
      return absl::InvalidArgumentError(absl::StrCat("the kernel requires ", requirement.text(),
                                                     ", got ", InputsToString(problem)));
  }
  return absl::OkStatus();
}

absl::StatusOr<KernelLaunches> LaunchesFor(const KernelManifest& manifest, const Problem& problem,
                                           const DeviceProperties& device) {
  const Launcher launcher(manifest, problem, device);
  KernelLaunches launches;
  if (manifest.scratch.has_value()) {
    ASSIGN_OR_RETURN(launches.scratch_bytes,
                     launcher.Evaluate("scratch", *manifest.scratch, 0, kScratchBytesMax));
  }
  for (const KernelEntry& entry : manifest.entries) {
    absl::StatusOr<KernelLaunch> launch = launcher.LaunchOf(entry);
    if (!launch.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(launch.status().message(), ", for ", InputsToString(problem)));
    launches.launches.push_back(*std::move(launch));
  }
  return launches;
}

}  // namespace warpcall::manifest
