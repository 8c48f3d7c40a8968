#include "kernels/triton/select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::triton {
namespace {

// CUDA's limits of a grid.
constexpr int64_t kBlocksMax[] = {0x7FFFFFFF, 65535, 65535};
// From Hopper on, machine code uses features of one compute capability only ("sm_90a").
constexpr int32_t kArchitectureHopper = 90;

absl::Status CheckTraits(const CompiledKernel& kernel, const Order& order) {
  for (const auto& [name, value] : kernel.traits) {
    for (const auto& [wanted_name, wanted] : order.traits) {
      if (name == wanted_name && value != wanted)
        return absl::InvalidArgumentError(absl::StrCat("variant \"", kernel.variant, "\" is for ",
                                                       name, " ", value, ", not ", wanted));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckArguments(const CompiledKernel& kernel, const Order& order) {
  for (const Argument& argument : kernel.arguments) {
    if (!IsInteger(argument)) continue;
    const int64_t value = ValueOf(order, argument.name);
    if (value % argument.divisible_by != 0)
      return absl::InvalidArgumentError(absl::StrCat("variant \"", kernel.variant, "\" wants ",
                                                     argument.name, " to be a multiple of ",
                                                     argument.divisible_by, ", got ", value));
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (argument.type == Argument::Type::kInt32 && value > kMost)
      return absl::InvalidArgumentError(absl::StrCat("variant \"", kernel.variant, "\" takes ",
                                                     argument.name, " up to ", kMost, ", got ",
                                                     value));
  }
  return absl::OkStatus();
}

// Sizes and numbers of an order, for messages: "n 40000".
std::string ToText(const Order& order) {
  std::string text;
  for (const auto& [name, value] : order.integers)
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", value);
  return text;
}

// Returns the distance from a problem to the sizes that a choice was measured with: the sum of the
// squared logarithms of their ratios.
double DistanceOf(const Choice& choice, const Order& order) {
  if (choice.sizes.size() != order.sizes.size()) return std::numeric_limits<double>::infinity();
  double distance = 0;
  for (size_t i = 0; i < choice.sizes.size(); ++i) {
    const double log_ratio = std::log2(static_cast<double>(order.sizes[i])) -
                             std::log2(static_cast<double>(choice.sizes[i]));
    distance += log_ratio * log_ratio;
  }
  return distance;
}

}  // namespace

int64_t ValueOf(const Order& order, absl::string_view name) {
  const auto found =
      absl::c_find_if(order.integers, [&](const auto& each) { return each.first == name; });
  WARPCALL_CHECK(found != order.integers.end(), name);
  return found->second;
}

float FloatOf(const Order& order, absl::string_view name) {
  const auto found =
      absl::c_find_if(order.floats, [&](const auto& each) { return each.first == name; });
  WARPCALL_CHECK(found != order.floats.end(), name);
  return found->second;
}

const Image* ImageFor(const CompiledKernel& kernel, int32_t architecture) {
  const Image* best = nullptr;
  for (const Image& image : kernel.images) {
    const bool same_generation = image.architecture / 10 == architecture / 10 &&
                                 image.architecture <= architecture &&
                                 image.architecture < kArchitectureHopper;
    if (image.architecture != architecture && !same_generation) continue;
    if (best == nullptr || image.architecture > best->architecture) best = &image;
  }
  return best;
}

absl::StatusOr<Blocks> BlocksFor(const CompiledKernel& kernel, const Order& order,
                                 const DeviceProperties& device) {
  RETURN_IF_ERROR(CheckTraits(kernel, order));
  RETURN_IF_ERROR(CheckArguments(kernel, order));
  const auto value_of = [&](absl::string_view name) -> absl::StatusOr<int64_t> {
    for (const auto& [constant, value] : kernel.constants)
      if (constant == name) return value;
    return ValueOf(order, name);
  };
  for (const manifest::IntegerExpression& requirement : kernel.requirements) {
    ASSIGN_OR_RETURN(const int64_t holds, requirement.Evaluate(value_of));
    if (!holds)
      return absl::InvalidArgumentError(absl::StrCat("variant \"", kernel.variant, "\" requires ",
                                                     requirement.text(), ", got ", ToText(order)));
  }
  uint32_t blocks[] = {1, 1, 1};
  for (size_t i = 0; i < kernel.grid.size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t count, kernel.grid[i].Evaluate(value_of));
    if (count < 1 || count > kBlocksMax[i])
      return absl::InvalidArgumentError(absl::StrCat("variant \"", kernel.variant, "\" would take ",
                                                     count, " blocks in dimension ", i,
                                                     " of its grid; the limit is ", kBlocksMax[i]));
    blocks[i] = static_cast<uint32_t>(count);
  }
  const Image* const image = ImageFor(kernel, device.architecture);
  if (image == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("the kernels are not compiled for ", device.name, "'s compute capability ",
                     device.compute_capability, "; CMAKE_CUDA_ARCHITECTURES decides that"));
  if (static_cast<int64_t>(image->shared_bytes) > device.shared_memory_per_block_bytes)
    return absl::UnimplementedError(absl::StrCat("variant \"", kernel.variant, "\" needs ",
                                                 image->shared_bytes,
                                                 " bytes of shared memory a block; ", device.name,
                                                 " has ", device.shared_memory_per_block_bytes));
  return Blocks{blocks[0], blocks[1], blocks[2]};
}

absl::Status CheckTaken(const KernelSet& set, const Order& order, const DeviceProperties& device) {
  absl::Status reason;
  // The last ones are the most general: what they refuse, all refuse.
  for (auto kernel = set.kernels.rbegin(); kernel != set.kernels.rend(); ++kernel) {
    const absl::Status taken = BlocksFor(*kernel, order, device).status();
    if (taken.ok()) return taken;
    if (reason.ok() && CheckTraits(*kernel, order).ok())
      reason = absl::UnimplementedError(taken.message());
  }
  return reason.ok() ? absl::UnimplementedError("no kernel was compiled for this") : reason;
}

absl::StatusOr<int> Choose(const KernelSet& set, const Order& order,
                           const DeviceProperties& device) {
  std::vector<int> taking;
  for (size_t i = 0; i < set.kernels.size(); ++i)
    if (BlocksFor(set.kernels[i], order, device).ok()) taking.push_back(static_cast<int>(i));
  if (taking.empty()) return CheckTaken(set, order, device);
  int chosen = taking.front();
  double least = std::numeric_limits<double>::infinity();
  for (const Choice& choice : set.choices) {
    const double distance = DistanceOf(choice, order);
    if (distance >= least) continue;
    const auto taker = absl::c_find_if(
        taking, [&](int i) { return set.kernels[static_cast<size_t>(i)].tile == choice.tile; });
    if (taker == taking.end()) continue;
    chosen = *taker;
    least = distance;
  }
  return chosen;
}

}  // namespace warpcall::triton
