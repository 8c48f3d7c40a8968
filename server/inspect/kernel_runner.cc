#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/cpu/thread_pool.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/engine/phases.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/profile_runner.h"
#include "server/runtime/plan_site.h"

namespace warpcall::inspect {
namespace {

class KernelRunner final : public ProfileRunner {
 public:
  KernelRunner(std::unique_ptr<Device> device, const ProfilePlan& plan)
      : plan_(plan), row_(plan.row->implementation), device_(std::move(device)) {}

  absl::Status PlaceOperands() {
    const DeviceProperties& properties = device_->properties();
    ASSIGN_OR_RETURN(stream_, device_->CreateStream());
    RETURN_IF_ERROR(stream_->BindThread());
    cpu::ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    const int64_t set_bytes = OperandLayout(plan_.problem).bytes;
    ASSIGN_OR_RETURN(sets_, OperandSets::Create({.problem = &plan_.problem,
                                                 .seed = plan_.seed,
                                                 .sets = SetsFor(set_bytes, properties)},
                                                properties, stream_.get(), &pool));
    return MakePlan();
  }

  absl::Status Run() override {
    last_ = {.request = last_.request + 1, .submitted_ns = MonotonicNs()};
    const Operands& operands = sets_->Next();
    absl::Status status = Enqueue(operands);
    {
      const Phase phase("wait", last_.request);
      status.Update(stream_->Synchronize());
    }
    last_.done_ns = MonotonicNs();
    return status;
  }

  absl::Status RunForCounters() override { return Run(); }

 private:
  absl::Status MakePlan() {
    const Phase phase("prepare", last_.request);
    const auto workspace = [this](size_t bytes) -> absl::StatusOr<void*> {
      if (bytes > workspace_.bytes()) {
        ASSIGN_OR_RETURN(workspace_, stream_->AllocateMemory(bytes));
      }
      return workspace_.data();
    };
    ASSIGN_OR_RETURN(
        kernel_, MakePlanOn({stream_.get(), &device_->properties(), &(*sets_)[0], workspace}, row_,
                            plan_.problem));
    context_.stream = stream_->native_handle();
    ASSIGN_OR_RETURN(context_.workspace, workspace(kernel_->traits().workspace_bytes));
    return absl::OkStatus();
  }

  absl::Status Enqueue(const Operands& operands) {
    const Phase phase("enqueue", last_.request);
    RETURN_IF_ERROR(stream_->Begin(1));
    RETURN_IF_ERROR(stream_->Mark(Milestone::kStart));
    RETURN_IF_ERROR(stream_->Mark(Milestone::kInputsReady));
    RETURN_IF_ERROR(Launch(operands));
    RETURN_IF_ERROR(stream_->Mark(Milestone::kKernelDone));
    return stream_->Mark(Milestone::kOutputsReady);
  }

  absl::Status Launch(const Operands& operands) {
    const Phase phase(row_.name, last_.request);
    return kernel_->Enqueue(operands, context_);
  }

  const ProfilePlan& plan_;
  const Implementation& row_;
  // Each member is destroyed before the one above it.
  const std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::optional<OperandSets> sets_;
  Buffer workspace_;
  PlanPtr kernel_;
  LaunchContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProfileRunner>> NewKernelRunner(std::unique_ptr<Device> device,
                                                               const ProfilePlan& plan) {
  auto runner = std::make_unique<KernelRunner>(std::move(device), plan);
  RETURN_IF_ERROR(runner->PlaceOperands());
  return runner;
}

}  // namespace warpcall::inspect
