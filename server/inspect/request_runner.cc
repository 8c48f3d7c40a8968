#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/cpu/thread_pool.h"
#include "proto/common/status_macros.h"
#include "server/engine/engine.h"
#include "server/engine/residents.h"
#include "server/engine/rounds.h"
#include "server/inspect/fill.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/profile_runner.h"

namespace warpcall::inspect {
namespace {

// Staging beyond the operands, for their alignment.
constexpr size_t kStagingSlackBytes = size_t{1} << 20;

InputPieces Prefix(const InputPieces& pieces, size_t bytes) {
  InputPieces prefix;
  for (const absl::Span<const char> piece : pieces) {
    if (bytes == 0) break;
    prefix.push_back(piece.subspan(0, bytes));
    bytes -= prefix.back().size();
  }
  return prefix;
}

class RequestRunner final : public ProfileRunner {
 public:
  explicit RequestRunner(const ProfilePlan& plan) : plan_(plan), inputs_(plan.inputs) {}

  absl::Status Start(const Registry& registry, std::unique_ptr<Device> device) {
    if (inputs_.empty()) RETURN_IF_ERROR(MakeInputs());
    EngineOptions options;
    options.lanes_per_device = options.lanes_per_gpu = 1;
    options.staging_bytes = kStagingSlackBytes;
    for (const TensorSpec& spec : plan_.problem.inputs) options.staging_bytes += spec.bytes();
    for (const TensorSpec& spec : plan_.problem.outputs) options.staging_bytes += spec.bytes();
    options.queue = {1, static_cast<int64_t>(options.staging_bytes)};
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(device));
    ASSIGN_OR_RETURN(engine_, Engine::Create(registry, std::move(devices), options));
    for (size_t i = 0; i < plan_.stays.size(); ++i)
      if (plan_.stays[i]) RETURN_IF_ERROR(Put(registry, i));
    return absl::OkStatus();
  }

  absl::Status Run() override { return Run(plan_.kernel->op, plan_.problem); }

  // Runs the first round of a large request, uncut.
  absl::Status RunForCounters() override {
    const Op& op = *plan_.kernel->op;
    const Rounds rounds =
        PlanRounds(&op, plan_.row->implementation, plan_.problem, engine_->device(0));
    return Run(nullptr,
               rounds.count == 1 ? plan_.problem : TakeParts(op, plan_.problem, rounds.PartsIn(0)));
  }

 private:
  absl::Status MakeInputs() {
    cpu::ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    for (const TensorSpec& spec : plan_.problem.inputs) {
      ASSIGN_OR_RETURN(Buffer input, AllocateHost(spec.bytes()));
      Fill(spec, NormalSequence(plan_.seed, static_cast<int>(made_.size())), pool, input.data());
      inputs_.push_back(
          {absl::MakeConstSpan(static_cast<const char*>(input.data()), input.bytes())});
      made_.push_back(std::move(input));
    }
    return absl::OkStatus();
  }

  // Copies an input to where it stays on the device.
  absl::Status Put(const Registry& registry, size_t input) {
    const TensorSpec& spec = plan_.problem.inputs[input];
    if (spec.bytes() == 0) return absl::OkStatus();
    stays_.resize(plan_.stays.size());
    ASSIGN_OR_RETURN(const Kernel* const copy, registry.Find(kCopyKernel));
    ASSIGN_OR_RETURN(const Problem problem,
                     MakeProblem(*copy->op, absl::MakeConstSpan(&spec, 1), {}));
    RequestTrace trace;
    trace.kernel = copy->id;
    auto job = std::make_unique<Job>();
    ASSIGN_OR_RETURN(job->row,
                     registry.Select(*copy, "", problem, engine_->device(0).properties()));
    trace.row = job->row->id;
    trace.work = copy->op->work(problem);
    job->op = copy->op;
    job->problem = problem;
    job->inputs.push_back(inputs_[input]);
    job->input_bytes = static_cast<int64_t>(spec.bytes());
    job->residents.resize(2);
    job->residents[1].content = stays_[input] = std::make_shared<ResidentMemory>(spec.bytes());
    return Await(std::move(job), &trace);
  }

  // Submits the job and waits for its end.
  absl::Status Await(std::unique_ptr<Job> job, RequestTrace* trace) {
    absl::Status result;
    absl::Notification done;
    job->key.id = ++jobs_;
    job->cancelled = &cancelled_;
    job->release_inputs = [] {};
    job->trace = trace;
    job->done = [&](absl::Status status, StagingBuffers) {
      result = std::move(status);
      done.Notify();
    };
    last_.request = job->key.id;
    last_.submitted_ns = MonotonicNs();
    RETURN_IF_ERROR(engine_->Submit(&job));
    done.WaitForNotification();
    last_.done_ns = MonotonicNs();
    return result;
  }

  // `op` null: in one round.
  absl::Status Run(const Op* op, const Problem& problem) {
    RequestTrace trace;
    trace.kernel = plan_.kernel->id;
    trace.row = plan_.row->id;
    trace.work = plan_.kernel->op->work(problem);
    if (problem.graph != nullptr) trace.graph = std::make_shared<GraphRun>(GraphRun{problem.graph});
    std::unique_ptr<Job> job = NewJob(problem);
    job->op = op;
    const absl::Status result = Await(std::move(job), &trace);
    last_.queue_ns = trace.queue_ns;
    last_.step_kernels.clear();
    if (trace.graph != nullptr)
      for (const LaunchShape& launch : trace.graph->launches)
        last_.step_kernels.push_back(launch.gpu_kernels);
    return result;
  }

  // Makes a job with the first bytes of the inputs, as many as `problem` takes.
  std::unique_ptr<Job> NewJob(const Problem& problem) {
    auto job = std::make_unique<Job>();
    job->row = plan_.row;
    job->problem = problem;
    if (!stays_.empty()) job->residents.resize(problem.inputs.size() + problem.outputs.size());
    for (size_t i = 0; i < stays_.size(); ++i) job->residents[i].content = stays_[i];
    for (size_t i = 0; i < problem.inputs.size(); ++i) {
      const size_t bytes = job->IsResident(i) ? 0 : problem.inputs[i].bytes();
      job->inputs.push_back(Prefix(inputs_[i], bytes));
      job->input_bytes += static_cast<int64_t>(bytes);
    }
    for (const TensorSpec& spec : problem.outputs)
      job->output_bytes += static_cast<int64_t>(spec.bytes());
    return job;
  }

  const ProfilePlan& plan_;
  std::vector<Buffer> made_;
  std::vector<InputPieces> inputs_;
  const std::atomic<bool> cancelled_{false};
  uint64_t jobs_ = 0;
  std::unique_ptr<Engine> engine_;  // its lanes use the others
  // By input; null: it comes with each request. Empty: all do. Last: the memory is the device's.
  std::vector<std::shared_ptr<ResidentMemory>> stays_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProfileRunner>> NewRequestRunner(const Registry& registry,
                                                                std::unique_ptr<Device> device,
                                                                const ProfilePlan& plan) {
  auto runner = std::make_unique<RequestRunner>(plan);
  RETURN_IF_ERROR(runner->Start(registry, std::move(device)));
  return runner;
}

}  // namespace warpcall::inspect
