#include "tests/fuzz/stream_server.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "proto/common/status_macros.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall::testing {
namespace {

constexpr size_t kStagingBytes = 8 << 20;
constexpr int64_t kMessageBytesMax = 1 << 20;

}  // namespace

Slices Sliced(absl::string_view message, uint32_t seed) {
  std::minstd_rand random(seed);
  Slices slices;
  do {
    const size_t bytes =
        seed == 0 ? message.size() : std::min<size_t>(message.size(), random() % 70);
    slices.Add(grpc::Slice(message.data(), bytes));
    message.remove_prefix(bytes);
  } while (!message.empty());
  return slices;
}

std::vector<wire::Bytes> BytesOfAll(const Slices& slices) {
  std::vector<wire::Bytes> all;
  for (const grpc::Slice& slice : slices) all.push_back(BytesOf(slice));
  return all;
}

StreamServer::StreamServer() {
  AddCpuKernels(&registry_);
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<CpuDevice>(1));
  EngineOptions options;
  options.staging_bytes = kStagingBytes;
  options.lanes_per_device = 1;
  options.threads = false;
  options.resident_bytes_max = kResidentBytesMax;
  engine_ = *Engine::Create(registry_, std::move(devices), options);
  deps_.registry = &registry_;
  deps_.engine = engine_.get();
  deps_.metrics = &metrics_;
  deps_.clock = MonotonicNs;
  deps_.limits.message_bytes_max = kMessageBytesMax;
}

absl::StatusOr<std::string> StreamServer::Run(std::unique_ptr<Job> job) {
  const std::atomic<bool> cancelled{false};
  absl::StatusOr<std::string> output = absl::InternalError("the job is not done");
  job->cancelled = &cancelled;
  job->release_inputs = [] {};
  job->done = [&](absl::Status status, StagingBuffers buffers) {
    if (!status.ok())
      output = std::move(status);
    else if (buffers[0].bytes() == 0)
      output.emplace();  // it stays on the device
    else
      output.emplace(buffers[0].data(), buffers[0].bytes());
  };
  RETURN_IF_ERROR(engine_->Submit(&job));
  const Engine::Parts parts = engine_->parts(0);
  Scheduler::IdleLane lane;
  Scheduler::Found found = parts.scheduler->TryNext(&lane);
  if (found.job == nullptr) return absl::InternalError("the job was not found");
  parts.lanes[0]->Process(std::move(found.job));
  return output;
}

absl::StatusOr<std::unique_ptr<Job>> StreamServer::MakeJob(ExecuteCodec* decoded, Request* call) {
  ASSIGN_OR_RETURN(CallSpec spec, decoded->Spec());
  RETURN_IF_ERROR(call->ReadKernel(std::move(spec)));
  ASSIGN_OR_RETURN(Problem problem, decoded->ToProblem(*call->kernel().op));
  call->SetProblem(std::move(problem));
  ASSIGN_OR_RETURN(JobInputs inputs, decoded->Inputs(*call->kernel().op, call->problem()));
  RETURN_IF_ERROR(call->Choose(absl::MakeConstSpan(&call->problem(), 1)));
  std::unique_ptr<Job> job = call->NewJob(call->problem());
  RETURN_IF_ERROR(CheckMessageBytes(deps_, kInputsData, job->input_bytes));
  RETURN_IF_ERROR(CheckMessageBytes(deps_, "the output", job->output_bytes));
  job->inputs = std::move(inputs);
  job->trace = &call->trace();
  return job;
}

absl::StatusOr<std::string> StreamServer::Execute(const v1::ExecuteRequest& request) {
  const std::string message = request.SerializeAsString();
  const wire::Bytes whole(message);
  ExecuteCodec decoded;
  RETURN_IF_ERROR(decoded.Decode(absl::MakeConstSpan(&whole, 1)));
  grpc::CallbackServerContext context;
  Request call(&deps_, &context, ConnectionPrincipal("fuzz"));
  std::unique_ptr<Job> job;
  ASSIGN_OR_RETURN(job, MakeJob(&decoded, &call));
  absl::StatusOr<std::string> output = Run(std::move(job));
  call.End(output.status());
  return output;
}

}  // namespace warpcall::testing
