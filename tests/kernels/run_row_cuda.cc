// Rows of GPUs: every operand and the workspace in an allocation of its own, between bands.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/libraries.h"
#include "kernels/plan.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cuda_device.h"
#include "tests/kernels/banded_array.h"
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

// A row with its operands in device memory.
class GpuRun {
 public:
  GpuRun(Gpu& gpu, const RowToRun& to_run, const Problem& problem)
      : gpu_(gpu), row_(to_run.row), variant_(to_run.variant), problem_(problem) {}

  absl::Status Load(absl::Span<const Memory> inputs);

  enum class Way : uint8_t { kLaunch, kGraph };
  // Runs the row into outputs that belong to this call, and returns them.
  absl::StatusOr<std::vector<Memory>> Run(uint8_t poison, Way way);

  absl::Status CheckInputs(absl::Span<const Memory> inputs) const;
  // REQUIRES: Run has been called.
  absl::StatusOr<LaunchShape> Shape() const { return plan_->shape(); }

 private:
  absl::Status MakePlan(const Operands& operands);
  absl::Status Poison(uint8_t poison);
  absl::Status LaunchGraph(const Operands& operands, const LaunchContext& context);
  absl::Status Enqueue(const Operands& operands, const LaunchContext& context, Way way);

  Gpu& gpu_;
  const Implementation& row_;
  const int variant_;
  const Problem& problem_;
  std::vector<BandedArray> inputs_;
  std::vector<BandedArray> outputs_;  // every run's, so that each run's lie elsewhere
  BandedArray workspace_;
  PlanPtr plan_;  // for both runs
};

absl::Status GpuRun::Load(absl::Span<const Memory> inputs) {
  for (const Memory& input : inputs) {
    inputs_.emplace_back();
    ASSIGN_OR_RETURN(inputs_.back(), BandedArray::Create(input.bytes()));
    RETURN_IF_ERROR(inputs_.back().CopyFrom(input.data()));
  }
  return absl::OkStatus();
}

absl::Status GpuRun::MakePlan(const Operands& operands) {
  RETURN_IF_ERROR(ToStatus(cudaDeviceSynchronize(), "waiting for the operands"));
  const auto workspace = [this](size_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(workspace_, BandedArray::Create(bytes));
    return workspace_.data();
  };
  const Tryout tryout = {gpu_.stream, &operands, workspace};
  ASSIGN_OR_RETURN(plan_, row_.plan(problem_, {.device = &gpu_.device->properties(),
                                               .libraries = gpu_.device->libraries(),
                                               .variant = variant_,
                                               .tryout = &tryout}));
  return workspace(plan_->traits().workspace_bytes).status();
}

// Poisons the memory again: data written by the planning must not hide a launch's omissions.
absl::Status GpuRun::Poison(uint8_t poison) {
  RETURN_IF_ERROR(workspace_.Fill(poison));
  const size_t outputs = problem_.outputs.size();
  for (size_t i = outputs_.size() - outputs; i < outputs_.size(); ++i)
    RETURN_IF_ERROR(outputs_[i].Fill(poison));
  return ToStatus(cudaDeviceSynchronize(), "waiting for the poison");
}

absl::Status GpuRun::LaunchGraph(const Operands& operands, const LaunchContext& context) {
  RETURN_IF_ERROR(ToStatus(cudaStreamBeginCapture(gpu_.stream, cudaStreamCaptureModeThreadLocal),
                           "beginning a graph"));
  absl::Status status = plan_->Enqueue(operands, context);
  cudaGraph_t graph = nullptr;
  status.Update(ToStatus(cudaStreamEndCapture(gpu_.stream, &graph), "ending a graph"));
  cudaGraphExec_t executable = nullptr;
  if (status.ok())
    status = ToStatus(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  RETURN_IF_ERROR(status);
  status = ToStatus(cudaGraphLaunch(executable, gpu_.stream), "launching a graph");
  status.Update(ToStatus(cudaStreamSynchronize(gpu_.stream), "running a graph"));
  cudaGraphExecDestroy(executable);
  return status;
}

// A vendor's library may refuse to be captured; it is launched a second time instead.
absl::Status GpuRun::Enqueue(const Operands& operands, const LaunchContext& context, Way way) {
  if (way == Way::kGraph) {
    const absl::Status captured = LaunchGraph(operands, context);
    if (captured.ok() || row_.family != Family::kLibrary) return captured;
    static auto& told = *new std::set<std::string>;
    if (told.insert(row_.name).second)
      std::printf("  %s is not captured: %s\n", row_.name, captured.ToString().c_str());
    cudaGetLastError();  // clears the capture's error
  }
  return plan_->Enqueue(operands, context);
}

absl::StatusOr<std::vector<Memory>> GpuRun::Run(uint8_t poison, Way way) {
  Operands operands;
  for (const BandedArray& input : inputs_) operands.inputs.push_back(input.data());
  for (const TensorSpec& spec : problem_.outputs) {
    outputs_.emplace_back();
    ASSIGN_OR_RETURN(outputs_.back(), BandedArray::Create(spec.bytes()));
    operands.outputs.push_back(outputs_.back().data());
  }
  if (plan_ == nullptr) RETURN_IF_ERROR(MakePlan(operands));
  const LaunchContext context{.stream = gpu_.stream, .workspace = workspace_.data()};
  RETURN_IF_ERROR(Poison(poison));
  RETURN_IF_ERROR(Enqueue(operands, context, way));
  RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(gpu_.stream), "running the row"));
  RETURN_IF_ERROR(workspace_.CheckBands("the workspace"));
  std::vector<Memory> results;
  for (size_t i = outputs_.size() - problem_.outputs.size(); i < outputs_.size(); ++i) {
    RETURN_IF_ERROR(outputs_[i].CheckBands("an output"));
    results.emplace_back(outputs_[i].bytes());
    RETURN_IF_ERROR(outputs_[i].CopyTo(results.back().data()));
  }
  return results;
}

absl::Status GpuRun::CheckInputs(absl::Span<const Memory> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    RETURN_IF_ERROR(inputs_[i].CheckBands("an input"));
    const Memory now(inputs[i].bytes());
    RETURN_IF_ERROR(inputs_[i].CopyTo(now.data()));
    RETURN_IF_ERROR(CheckSame(now.data(), inputs[i].data(), now.bytes(), "an input"));
  }
  return absl::OkStatus();
}

}  // namespace

const DeviceProperties* TestGpuProperties() {
  return TheGpu() == nullptr ? nullptr : &TheGpu()->device->properties();
}

void AddGpuRows(Registry* registry) { AddCudaKernels(registry); }

absl::StatusOr<std::vector<Memory>> RunRowOnGpu(const RowToRun& to_run, const Problem& problem,
                                                absl::Span<const Memory> inputs, uint8_t poison) {
  Gpu& gpu = *TheGpu();
  RETURN_IF_ERROR(gpu.device->MakeCurrent());
  GpuRun run(gpu, to_run, problem);
  RETURN_IF_ERROR(run.Load(inputs));
  ASSIGN_OR_RETURN(std::vector<Memory> outputs, run.Run(poison, GpuRun::Way::kLaunch));
  const uint8_t other_poison = static_cast<uint8_t>(~poison);
  ASSIGN_OR_RETURN(const std::vector<Memory> again, run.Run(other_poison, GpuRun::Way::kGraph));
  RETURN_IF_ERROR(run.CheckInputs(inputs));
  for (size_t i = 0; i < outputs.size(); ++i)
    RETURN_IF_ERROR(CheckSame(again[i].data(), outputs[i].data(), outputs[i].bytes(),
                              "an output, computed again by a graph"));
  RETURN_IF_ERROR(run.Shape().status());
  return outputs;
}

}  // namespace warpcall::testing
