#include "server/self_test/trial_runner.h"

#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/common/status_macros.h"
#include "server/inspect/operand_sets.h"
#include "server/runtime/plan_site.h"

namespace warpcall::self_test {

using inspect::RunPhase;

absl::StatusOr<std::unique_ptr<TrialRunner>> TrialRunner::Create(Device* device) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device->CreateStream());
  // On the CPU this call would only lower the thread's priority, and delay the server's start.
  if (device->properties().kind != DeviceKind::kCpu) RETURN_IF_ERROR(stream->BindThread());
  return std::unique_ptr<TrialRunner>(new TrialRunner(device, std::move(stream)));
}

absl::Status TrialRunner::Run(const Implementation& row, const Problem& problem,
                              const Operands& host) {
  times_ = {};
  if (device_->properties().kind == DeviceKind::kCpu) return RunOn(row, problem, host, host);
  std::vector<Buffer> memory;
  Operands operands;
  const auto allocate = [&](const TensorSpec& spec) -> absl::StatusOr<void*> {
    if (spec.bytes() == 0) return nullptr;
    ASSIGN_OR_RETURN(Buffer buffer, stream_->AllocateMemory(spec.bytes()));
    return memory.emplace_back(std::move(buffer)).data();
  };
  for (const TensorSpec& spec : problem.inputs) {
    ASSIGN_OR_RETURN(void* const data, allocate(spec));
    operands.inputs.push_back(data);
  }
  for (const TensorSpec& spec : problem.outputs) {
    ASSIGN_OR_RETURN(void* const data, allocate(spec));
    operands.outputs.push_back(data);
  }
  return RunOn(row, problem, operands, host);
}

absl::Status TrialRunner::Copy(const Problem& problem, const Operands& operands,
                               const Operands& host) {
  for (size_t i = 0; i < operands.inputs.size(); ++i) {
    if (operands.inputs[i] == host.inputs[i]) continue;
    RETURN_IF_ERROR(stream_->CopyToDevice(const_cast<void*>(operands.inputs[i]), host.inputs[i],
                                          problem.inputs[i].bytes()));
  }
  return absl::OkStatus();
}

absl::Status TrialRunner::RunOn(const Implementation& row, const Problem& problem,
                                const Operands& operands, const Operands& host) {
  RETURN_IF_ERROR(RunPhase(stream_.get(), Milestone::kInputsReady,
                           [&] { return Copy(problem, operands, host); }));
  times_.h2d_ns = stream_->Times().h2d_ns;
  Buffer workspace;
  const auto allocate = [&](size_t bytes) -> absl::StatusOr<void*> {
    if (bytes > workspace.bytes()) {
      ASSIGN_OR_RETURN(workspace, stream_->AllocateMemory(bytes));
    }
    return workspace.data();
  };
  ASSIGN_OR_RETURN(
      const PlanPtr plan,
      MakePlanOn({stream_.get(), &device_->properties(), &operands, allocate}, row, problem));
  LaunchContext context = {.stream = stream_->native_handle()};
  ASSIGN_OR_RETURN(context.workspace, allocate(plan->traits().workspace_bytes));
  const auto copy_outputs = [&](bool to_device) -> absl::Status {
    for (size_t i = 0; i < operands.outputs.size(); ++i) {
      void* const there = operands.outputs[i];
      void* const here = host.outputs[i];
      const size_t bytes = problem.outputs[i].bytes();
      if (there == here) continue;
      RETURN_IF_ERROR(to_device ? stream_->CopyToDevice(there, here, bytes)
                                : stream_->CopyToStaging(here, there, bytes));
    }
    return absl::OkStatus();
  };
  // After the plan was made, which may have written them.
  RETURN_IF_ERROR(
      RunPhase(stream_.get(), Milestone::kInputsReady, [&] { return copy_outputs(true); }));
  RETURN_IF_ERROR(RunPhase(stream_.get(), Milestone::kKernelDone,
                           [&] { return plan->Enqueue(operands, context); }));
  times_.kernel_ns = stream_->Times().kernel_ns;
  RETURN_IF_ERROR(
      RunPhase(stream_.get(), Milestone::kOutputsReady, [&] { return copy_outputs(false); }));
  times_.d2h_ns = stream_->Times().d2h_ns;
  return absl::OkStatus();
}

}  // namespace warpcall::self_test
