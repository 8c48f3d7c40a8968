#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/common/status_macros.h"
#include "kernels/cpu/thread_pool.h"
#include "server/engine/clock.h"
#include "server/engine/phases.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/profile_runner.h"

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
    if (row_.workspace_bytes != nullptr) {
      ASSIGN_OR_RETURN(workspace_,
                       stream_->AllocateMemory(row_.workspace_bytes(plan_.problem, properties)));
    }
    context_.stream = stream_->native_handle();
    context_.device = &properties;
    context_.workspace = workspace_.data();
    context_.libraries = stream_->libraries();
    return absl::OkStatus();
  }

  absl::Status Run() override {
    last_ = {.request = last_.request + 1, .submitted_ns = MonotonicNs()};
    const Operands& operands = sets_->Next();
    RETURN_IF_ERROR(Prepare(operands));
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
  absl::Status Prepare(const Operands& operands) {
    if (row_.prepare == nullptr) return absl::OkStatus();
    const Phase phase("prepare", last_.request);
    return row_.prepare(plan_.problem, operands, &context_);
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
    return row_.launch(plan_.problem, operands, context_);
  }

  const ProfilePlan& plan_;
  const Implementation& row_;
  // Each is given back before the one above it.
  const std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::optional<OperandSets> sets_;
  Buffer workspace_;
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
