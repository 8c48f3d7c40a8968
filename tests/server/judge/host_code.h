// Candidates whose kernels are functions of this program, for a device that is the CPU: a stand-in
// for the compiler and for a GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/compiled/program.h"
#include "server/judge/code.h"

namespace warpcall::judge {

inline void SoftmaxRow(const float* x, float* y, int64_t columns) {
  float most = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < columns; ++j) most = x[j] > most ? x[j] : most;
  double sum = 0;
  for (int64_t j = 0; j < columns; ++j) sum += y[j] = std::exp(x[j] - most);
  for (int64_t j = 0; j < columns; ++j) y[j] = static_cast<float>(y[j] / sum);
}

// A launch as a kernel sees it: pointers and values in the order of the manifest's args.
struct HostLaunch {
  const manifest::KernelLaunch* launch = nullptr;
  std::vector<void*> pointers;   // by parameter; null for values
  std::vector<uint64_t> values;  // likewise; 0 for pointers

  template <typename T>
  T* Pointer(size_t i) const {
    return static_cast<T*>(pointers[i]);
  }
};
using HostKernel = std::function<absl::Status(const HostLaunch&)>;

// Kernels by their entries' names. Each load of the code calls the function anew, so that its
// kernels begin with what a module's variables hold at first.
using HostKernels = std::function<std::map<std::string, HostKernel>()>;

inline HostLaunch LaunchOf(const manifest::KernelLaunch& launch, const Operands& operands,
                           void* scratch) {
  HostLaunch host{.launch = &launch, .pointers = {}, .values = {}};
  const auto inputs = static_cast<int>(operands.inputs.size());
  for (const manifest::Parameter& parameter : launch.parameters) {
    void* pointer = nullptr;
    if (parameter.operand == manifest::kScratchOperand)
      pointer = scratch;
    else if (parameter.operand >= inputs)
      pointer = operands.outputs[static_cast<size_t>(parameter.operand - inputs)];
    else if (parameter.operand >= 0)
      pointer = const_cast<void*>(operands.inputs[static_cast<size_t>(parameter.operand)]);
    host.pointers.push_back(pointer);
    host.values.push_back(parameter.bits);
  }
  return host;
}

// Runs `entries` of `kernels` in order.
inline PlanPtr PlanOf(std::map<std::string, HostKernel> kernels, std::vector<std::string> entries,
                      manifest::KernelLaunches launches, bool scratch_zero) {
  const auto scratch_bytes = static_cast<size_t>(launches.scratch_bytes);
  return NewPlan({.workspace_bytes = scratch_bytes}, [=](const Operands& operands,
                                                         const LaunchContext& context) {
    if (scratch_zero && scratch_bytes > 0) std::memset(context.workspace, 0, scratch_bytes);
    absl::Status status;
    for (size_t i = 0; i < entries.size() && status.ok(); ++i)
      status = kernels.at(entries[i])(LaunchOf(launches.launches[i], operands, context.workspace));
    return status;
  });
}

// Takes any source but "wrong".
inline absl::StatusOr<compiled::CudaCode> HostCompile(const compiled::ForeignSource& source,
                                                      int64_t) {
  if (source.source == "wrong")
    return compiled::AsCompileError(
        absl::InternalError("k.cu(2): warning: odd\nk.cu(3): error: a mistake\n  here"));
  compiled::CudaCode code;
  code.log = "a warning";
  code.kernels = source.entries;
  return code;
}

inline LoadCode HostLoad(HostKernels kernels) {
  return [kernels = std::move(kernels)](const compiled::CudaCode& code,
                                        const manifest::KernelLaunches& launches,
                                        bool scratch_zero) -> absl::StatusOr<PlanPtr> {
    return PlanOf(kernels(), code.kernels, launches, scratch_zero);
  };
}

}  // namespace warpcall::judge
