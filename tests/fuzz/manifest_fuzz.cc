// An input that begins with "=" is an expression, one that begins with "//" source, and any other a
// manifest.
#include <limits>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/manifest/kernel_manifest.h"
#include "proto/common/manifest_comment.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

using manifest::IntegerExpression;
using manifest::KernelLaunch;
using manifest::KernelLaunches;
using manifest::KernelManifest;

// A name stands there in full, and text twice at most: in the message, and with the refusal's
// value.
constexpr size_t kMessageMax = 4096;

std::string WrongInRefusal(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status.ToString();
  if (status.message().size() > 2 * 65536 + kMessageMax)
    return absl::StrCat("a message of ", status.message().size());
  return "";
}

absl::StatusOr<int64_t> ValueOf(absl::string_view name) {
  if (name == "rows") return 7;
  if (name == "cols") return 16;
  return std::numeric_limits<int64_t>::max();
}

std::string WrongInExpression(absl::string_view text) {
  const auto is_name = [](absl::string_view name) {
    return name == "rows" || name == "cols" || name == "elements";
  };
  const auto integer = IntegerExpression::Parse(text, is_name);
  const auto condition = IntegerExpression::ParseCondition(text, is_name);
  if (integer.ok() && condition.ok()) return "it is an integer and a condition";
  for (const auto* const parsed : {&integer, &condition}) {
    if (!parsed->ok()) {
      if (std::string wrong = WrongInRefusal(parsed->status()); !wrong.empty()) return wrong;
      continue;
    }
    const absl::StatusOr<int64_t> value = (*parsed)->Evaluate(ValueOf);
    if (!value.ok()) return WrongInRefusal(value.status());
    if (condition.ok() && *value != 0 && *value != 1)
      return absl::StrCat("a condition is ", *value);
  }
  return "";
}

std::string WrongIn(const KernelLaunch& launch, const Problem& problem) {
  int64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0) return "a size is 0";
    threads *= launch.block[i];
  }
  if (threads > 1024) return absl::StrCat(threads, " threads");
  for (const manifest::Parameter& parameter : launch.parameters)
    if (parameter.operand >= static_cast<int>(problem.inputs.size() + problem.outputs.size()))
      return absl::StrCat("operand ", parameter.operand);
  return "";
}

std::string WrongInLaunches(const KernelManifest& manifest, const Problem& problem) {
  DeviceProperties device;
  device.multiprocessors = 132;
  device.shared_memory_per_block_bytes = 227 << 10;
  if (const absl::Status taken = CheckTaken(manifest, problem, device); !taken.ok())
    return WrongInRefusal(taken);
  const absl::StatusOr<KernelLaunches> launches = LaunchesFor(manifest, problem, device);
  if (!launches.ok()) return WrongInRefusal(launches.status());
  if (launches->launches.size() != manifest.entries.size() || launches->scratch_bytes < 0)
    return "launches are missing";
  for (const KernelLaunch& launch : launches->launches)
    if (std::string wrong = WrongIn(launch, problem); !wrong.empty()) return wrong;
  return "";
}

std::string WrongInManifest(absl::string_view json) {
  const auto find_op = [](absl::string_view name) -> const Op* {
    if (name == "softmax") return &SoftmaxOp();
    return name == "matmul" ? &MatmulOp() : nullptr;
  };
  const absl::StatusOr<KernelManifest> manifest = manifest::ReadKernelManifest(json, find_op);
  if (!manifest.ok()) return WrongInRefusal(manifest.status());
  const absl::StatusOr<KernelManifest> again =
      manifest::ReadKernelManifest(manifest->canonical, find_op);
  if (!again.ok() || again->canonical != manifest->canonical)
    return "the canonical text is another manifest";
  for (const std::vector<Dims>& example : manifest->examples) {
    std::vector<TensorSpec> inputs;
    for (const Dims& dims : example) inputs.push_back({manifest->types.back(), dims});
    const absl::StatusOr<Problem> problem =
        MakeProblem(*manifest->op, inputs, AttributesOf(*manifest));
    if (!problem.ok()) continue;  // it is one of the first type alone
    if (std::string wrong = WrongInLaunches(*manifest, *problem); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

std::string FuzzManifest(absl::string_view input) {
  if (absl::ConsumePrefix(&input, "=")) return WrongInExpression(input);
  if (!absl::StartsWith(input, "//")) return WrongInManifest(input);
  const absl::StatusOr<std::string> json = FindManifest(input);
  return json.ok() ? WrongInManifest(*json) : WrongInRefusal(json.status());
}

}  // namespace warpcall::testing
