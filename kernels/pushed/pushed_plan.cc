#include "kernels/pushed/pushed_plan.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/loaded_kernel.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::pushed {
namespace {

using cuda::ToStatus;
using manifest::KernelLaunch;
using manifest::KernelLaunches;
using manifest::Parameter;

const void* FunctionOf(cudaKernel_t kernel) { return static_cast<const void*>(kernel); }

absl::Status CheckParameters(const std::string& name, cudaKernel_t kernel,
                             const KernelLaunch& launch) {
  const size_t count = launch.parameters.size();
  for (size_t i = 0; i <= count; ++i) {
    size_t offset = 0;
    size_t bytes = 0;
    const bool has_one =
        cudaFuncGetParamInfo(FunctionOf(kernel), i, &offset, &bytes) == cudaSuccess;
    if (!has_one) cudaGetLastError();
    if (has_one != (i < count))
      return absl::InvalidArgumentError(absl::StrCat("args has ", count, " entries; ", name,
                                                     " takes ", has_one ? "more" : "fewer"));
    if (has_one && bytes != launch.parameters[i].bytes)
      return absl::InvalidArgumentError(absl::StrCat(
          "args[", i, "] has ", launch.parameters[i].bytes, " bytes; ", name, " takes ", bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckThreads(const std::string& name, const cudaFuncAttributes& attributes,
                          const KernelLaunch& launch) {
  const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  if (threads <= static_cast<uint32_t>(attributes.maxThreadsPerBlock)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("launch.block has ", threads, " threads; ", name,
                                                 " takes at most ", attributes.maxThreadsPerBlock,
                                                 ", by its registers or launch bounds"));
}

absl::Status CheckLocalMemory(const std::string& name, const cudaFuncAttributes& attributes,
                              const DeviceProperties& device) {
  const int64_t bytes = static_cast<int64_t>(attributes.localSizeBytes) * device.multiprocessors *
                        device.threads_per_multiprocessor;
  if (bytes <= kLocalBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      name, " takes ", attributes.localSizeBytes, " bytes of local memory a thread, ", bytes,
      " for all that this device holds at once; the limit is ", kLocalBytesMax));
}

class PushedPlan final : public Plan {
 public:
  PushedPlan(compiled::CudaCode code, KernelLaunches launches, bool scratch_zero,
             const DeviceProperties& device)
      : Plan({.workspace_bytes = static_cast<size_t>(launches.scratch_bytes),
              .may_be_replayed = true,
              .is_compiled = true}),
        code_(std::move(code)),
        launches_(std::move(launches)),
        scratch_zero_(scratch_zero && launches_.scratch_bytes > 0),
        device_(device) {
    WARPCALL_CHECK(code_.kernels.size() == launches_.launches.size(), code_.kernels.size(),
                   launches_.launches.size());
  }

  absl::Status Load() {
    ASSIGN_OR_RETURN(kernels_, cuda::LoadedKernel::LoadAll(code_.cubin, code_.kernels));
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const std::string& name = code_.kernels[i];
      const KernelLaunch& launch = launches_.launches[i];
      ASSIGN_OR_RETURN(const cudaFuncAttributes attributes, kernels_[i].MakeReady());
      RETURN_IF_ERROR(CheckParameters(name, kernels_[i].get(), launch));
      RETURN_IF_ERROR(CheckThreads(name, attributes, launch));
      RETURN_IF_ERROR(CheckLocalMemory(name, attributes, device_));
      RETURN_IF_ERROR(ToStatus(
          cudaFuncSetAttribute(FunctionOf(kernels_[i].get()),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(launch.shared_bytes)),
          absl::StrCat("giving ", name, " ", launch.shared_bytes, " bytes of shared memory")));
    }
    return absl::OkStatus();
  }

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    const cudaStream_t stream = cuda::StreamOf(context);
    if (scratch_zero_)
      RETURN_IF_ERROR(
          ToStatus(cudaMemsetAsync(context.workspace, 0, traits().workspace_bytes, stream),
                   "zeroing the scratch memory"));
    for (size_t i = 0; i < kernels_.size(); ++i)
      RETURN_IF_ERROR(Launch(kernels_[i].get(), launches_.launches[i], operands, context));
    return absl::OkStatus();
  }

  MachineCode Code() const override { return {code_.kernels[0], code_.cubin}; }

 private:
  static absl::Status Launch(cudaKernel_t kernel, const KernelLaunch& launch,
                             const Operands& operands, const LaunchContext& context) {
    std::vector<uint64_t> values;
    for (const Parameter& parameter : launch.parameters)
      values.push_back(ValueOf(parameter, operands, context));
    std::vector<void*> addresses;
    for (uint64_t& value : values) addresses.push_back(&value);
    const cuda::Grid grid = GridOf(launch);
    cudaLaunchConfig_t config = {};
    config.gridDim = grid.blocks;
    config.blockDim = grid.threads;
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = cuda::StreamOf(context);
    return ToStatus(cudaLaunchKernelExC(&config, FunctionOf(kernel), addresses.data()),
                    "launching a pushed kernel");
  }

  static uint64_t ValueOf(const Parameter& parameter, const Operands& operands,
                          const LaunchContext& context) {
    const auto inputs = static_cast<int>(operands.inputs.size());
    const void* address = nullptr;
    if (parameter.operand == manifest::kScratchOperand)
      address = context.workspace;
    else if (parameter.operand >= inputs)
      address = operands.outputs[static_cast<size_t>(parameter.operand - inputs)];
    else if (parameter.operand >= 0)
      address = operands.inputs[static_cast<size_t>(parameter.operand)];
    else
      return parameter.bits;
    return reinterpret_cast<uintptr_t>(address);
  }

  static cuda::Grid GridOf(const KernelLaunch& launch) {
    return {.blocks = dim3(launch.grid[0], launch.grid[1], launch.grid[2]),
            .threads = dim3(launch.block[0], launch.block[1], launch.block[2]),
            .shared_bytes = launch.shared_bytes};
  }

  absl::StatusOr<LaunchShape> AskShape() const override {
    // The runtime takes a cudaKernel_t wherever it takes a function.
    ASSIGN_OR_RETURN(
        LaunchShape shape,
        cuda::ShapeOf(cuda::LaunchedKernel(reinterpret_cast<void (*)()>(kernels_[0].get()),
                                           GridOf(launches_.launches[0])),
                      device_));
    shape.gpu_kernels = static_cast<int32_t>(kernels_.size());
    return shape;
  }

  const compiled::CudaCode code_;
  const KernelLaunches launches_;
  const bool scratch_zero_;
  const DeviceProperties device_;
  std::vector<cuda::LoadedKernel> kernels_;
};

}  // namespace

absl::StatusOr<PlanPtr> NewPushedPlan(compiled::CudaCode code, const KernelLaunches& launches,
                                      bool scratch_zero, const DeviceProperties& device) {
  auto plan = std::make_shared<PushedPlan>(std::move(code), launches, scratch_zero, device);
  RETURN_IF_ERROR(plan->Load());
  return plan;
}

}  // namespace warpcall::pushed
