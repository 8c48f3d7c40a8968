// Rows of GPUs: every operand and the workspace in an allocation of its own.
#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/libraries.h"
#include "kernels/variants.h"
#include "server/runtime/cuda/cuda_device.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/run_row.h"

namespace warpcall::testing {
namespace {

using cuda::ToStatus;

// One GPU for the whole program, as the server opens it, with one stream.
struct Gpu {
  std::unique_ptr<CudaDevice> device;
  cudaStream_t stream = nullptr;
};

Gpu* TheGpu() {
  static Gpu* const gpu = []() -> Gpu* {
    const auto count = CudaDevice::Count();
    if (!count.ok() || *count == 0) return nullptr;
    auto device = CudaDevice::Open(0);
    if (!device.ok()) return nullptr;
    auto* opened = new Gpu{*std::move(device)};
    return cudaStreamCreateWithFlags(&opened->stream, cudaStreamNonBlocking) == cudaSuccess
               ? opened
               : nullptr;
  }();
  return gpu;
}

absl::Status CopyIn(const Memory& from, DeviceArray* to) {
  ASSIGN_OR_RETURN(*to, DeviceArray::Create(from.bytes()));
  if (from.bytes() == 0) return absl::OkStatus();
  return ToStatus(cudaMemcpy(to->data(), from.data(), from.bytes(), cudaMemcpyHostToDevice),
                  "copying in");
}

absl::Status Poisoned(size_t bytes, uint8_t poison, DeviceArray* memory) {
  ASSIGN_OR_RETURN(*memory, DeviceArray::Create(bytes));
  if (bytes == 0) return absl::OkStatus();
  return ToStatus(cudaMemset(memory->data(), poison, bytes), "poisoning");
}

}  // namespace

const DeviceProperties* TestGpuProperties() {
  return TheGpu() == nullptr ? nullptr : &TheGpu()->device->properties();
}

void AddGpuRows(Registry* registry) { AddCudaKernels(registry); }

absl::StatusOr<std::vector<Memory>> RunRowOnGpu(const RowToRun& to_run, const Problem& problem,
                                                absl::Span<const Memory> inputs, uint8_t poison) {
  const Implementation& row = to_run.row;
  Gpu& gpu = *TheGpu();
  RETURN_IF_ERROR(gpu.device->MakeCurrent());
  std::vector<DeviceArray> memory(inputs.size() + problem.outputs.size() + 1);
  Operands operands;
  size_t next = 0;
  for (const Memory& input : inputs) {
    RETURN_IF_ERROR(CopyIn(input, &memory[next]));
    operands.inputs.push_back(memory[next++].data());
  }
  for (const TensorSpec& spec : problem.outputs) {
    RETURN_IF_ERROR(Poisoned(spec.bytes(), poison, &memory[next]));
    operands.outputs.push_back(memory[next++].data());
  }
  const DeviceProperties& properties = gpu.device->properties();
  const size_t workspace_bytes = WorkspaceBytes(row, problem, properties, to_run.variant);
  RETURN_IF_ERROR(Poisoned(workspace_bytes, poison, &memory[next]));
  RETURN_IF_ERROR(ToStatus(cudaDeviceSynchronize(), "waiting for the operands"));
  const LaunchContext context{.stream = gpu.stream,
                              .device = &properties,
                              .workspace = memory[next].data(),
                              .libraries = gpu.device->libraries(),
                              .variant = to_run.variant};
  if (row.prepare != nullptr) {
    RETURN_IF_ERROR(row.prepare(problem, operands, context));
    // What prepare wrote must not hide what launch forgets.
    for (size_t i = 0; i < problem.outputs.size(); ++i) {
      if (problem.outputs[i].bytes() == 0) continue;
      RETURN_IF_ERROR(ToStatus(cudaMemset(operands.outputs[i], poison, problem.outputs[i].bytes()),
                               "poisoning again"));
    }
    RETURN_IF_ERROR(ToStatus(cudaDeviceSynchronize(), "waiting for the poison"));
  }
  RETURN_IF_ERROR(row.launch(problem, operands, context));
  RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(gpu.stream), "running the row"));
  if (row.shape != nullptr) RETURN_IF_ERROR(row.shape(problem, properties).status());
  std::vector<Memory> outputs;
  for (size_t i = 0; i < problem.outputs.size(); ++i) {
    outputs.emplace_back(problem.outputs[i].bytes());
    if (outputs.back().bytes() == 0) continue;
    RETURN_IF_ERROR(ToStatus(cudaMemcpy(outputs.back().data(), operands.outputs[i],
                                        outputs.back().bytes(), cudaMemcpyDeviceToHost),
                             "copying out"));
  }
  return outputs;
}

}  // namespace warpcall::testing
