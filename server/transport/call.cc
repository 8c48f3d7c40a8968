#include "server/transport/call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/transport/background_thread.h"
#include "server/transport/caller.h"
#include "server/transport/inflater.h"

namespace warpcall {
namespace {

// Timers run by another clock than deadlines: one that is early would find the job still wanted.
constexpr auto kTimerSlack = std::chrono::milliseconds(2);
// Nothing waits in a queue for a day.
constexpr int64_t kTimerNsMax = int64_t{24} * 3600 * 1'000'000'000;

}  // namespace

Call::Call(ExecuteDeps* deps, grpc::CallbackServerContext* context,
           std::unique_ptr<CallCodec> codec)
    : deps_(deps), codec_(std::move(codec)), request_(deps, context, Identify(*deps, *context)) {
  deps->calls.open.fetch_add(1);
}

void Call::Start(grpc::ByteBuffer* message, grpc::ByteBuffer* response,
                 absl::AnyInvocable<void(const absl::Status&)> end) {
  message_ = message;
  response_ = response;
  end_ = std::move(end);
  absl::Status status = request_.Admit(codec_->method());
  codec_->SetCaller(request_.key().principal);
  if (status.ok()) status = CheckMessage();
  if (status.ok()) {
    status = deps_->engine->CheckRoomFor(request_.key().principal);
    if (!status.ok()) {
      message_->Clear();
      return deps_->parts.background->Add([this, status] { Finish(status); });
    }
  }
  if (!status.ok() || !Inflater::IsCompressed(*message_)) return HoldAndSubmit(status);
  deps_->parts.inflater->InflateAsync(
      request_.key().principal, MessageLengthMax(*deps_), message_,
      [this](const absl::Status& inflated) { HoldAndSubmit(inflated); });
}

absl::Status Call::CheckMessage() {
  // The client vanished, or its deadline passed, before the message was complete.
  if (!message_->Valid()) return absl::CancelledError("the call ended before its message had come");
  return CheckMessageLength(*deps_, static_cast<int64_t>(message_->Length()));
}

void Call::HoldAndSubmit(absl::Status status) {
  if (status.ok()) status = request_.Hold(static_cast<int64_t>(message_->Length()));
  if (status.ok()) status = Submit();
  if (!status.ok()) Finish(status);
}

absl::Status Call::Submit() {
  std::unique_ptr<Job> job;
  ASSIGN_OR_RETURN(job, MakeJob());
  // From here on a lane may answer, and this call be gone, at any moment: unless Submit refuses.
  device_->store(job->device);
  return deps_->engine->Submit(&job);
}

absl::StatusOr<std::unique_ptr<Job>> Call::MakeJob() {
  RETURN_IF_ERROR(codec_->Decode(*message_));
  RETURN_IF_ERROR(codec_->FindResidents(&deps_->engine->residents(), request_.caller()->name));
  CallSpec spec;
  ASSIGN_OR_RETURN(spec, codec_->Spec());
  const bool has_timeout = spec.timeout_ns != kNoDeadline;
  RETURN_IF_ERROR(request_.ReadKernel(std::move(spec)));
  ASSIGN_OR_RETURN(Problem stated, codec_->ToProblem(*request_.kernel().op));
  request_.SetProblem(std::move(stated));
  if (has_timeout) SetTimer();
  const Problem& problem = request_.problem();
  JobInputs inputs;
  ASSIGN_OR_RETURN(inputs, codec_->Inputs(*request_.kernel().op, problem));
  RETURN_IF_ERROR(request_.Choose(absl::MakeConstSpan(&problem, 1)));
  std::unique_ptr<Job> job = request_.NewJob(problem);
  RETURN_IF_ERROR(CheckMessageBytes(*deps_, kInputsData, job->input_bytes));
  if (job->output_bytes > deps_->limits.message_bytes_max)
    RETURN_IF_ERROR(CheckMessageBytes(
        *deps_, absl::StrCat("the output ", ToString(problem.outputs[0])), job->output_bytes));
  job->inputs = std::move(inputs);
  job->cancelled = &cancelled_;
  job->trace = &request_.trace();
  job->release_inputs = [this] {
    codec_->ReleaseInputs();
    message_->Clear();
  };
  job->done = [this](absl::Status status, StagingBuffers outputs) {
    Answer(std::move(status), std::move(outputs));
  };
  return job;
}

void Call::SetTimer() {
  const int64_t left_ns =
      std::clamp<int64_t>(request_.key().deadline_ns - deps_->clock(), 0, kTimerNsMax);
  const auto end = std::chrono::system_clock::now() + std::chrono::nanoseconds(left_ns);
  deps_->calls.open.fetch_add(1);  // until the timer has run: it uses the engine
  timer_ = std::make_unique<grpc::Alarm>();
  timer_->Set(end + kTimerSlack,
              [deps = deps_, device = device_, key = request_.key()](bool ran_out) {
                // A job that runs by now looks at its deadline by itself.
                if (ran_out && device->load() >= 0 && deps->clock() >= key.deadline_ns)
                  deps->engine->Cancel(device->load(), key);
                deps->calls.open.fetch_sub(1);
              });
}

void Call::Cancel() {
  cancelled_.store(true);
  const int device = device_->load();
  if (device >= 0) deps_->engine->Cancel(device, request_.key());
}

void Call::Answer(absl::Status status, StagingBuffers outputs) {
  status = request_.NameStep(status);
  if (status.ok() && cancelled_.load())
    status = absl::CancelledError("the client went away while the device worked");
  if (status.ok()) status = codec_->Encode(&request_, std::move(outputs), response_);
  Finish(status);
}

void Call::Finish(const absl::Status& status) {
  request_.Count(status);
  codec_->RecordEnd(request_.trace(), status);
  // `end_` may destroy this, and itself with it.
  auto end = std::move(end_);
  end(status);
}

UnaryCall* UnaryCall::Start(ExecuteDeps* deps, const Unary& unary,
                            std::unique_ptr<CallCodec> codec) {
  auto* call = new UnaryCall(deps, unary, std::move(codec));
  call->call_.Start(unary.message(), unary.response,
                    [call](const absl::Status& status) { call->End(status); });
  return call;
}

void UnaryCall::OnCancel() {
  handover_.Take();
  call_.Cancel();
}

void UnaryCall::End(const absl::Status& status) {
  call_.TellId(status);
  AddLoadReport(deps_, status.code(), unary_.context);
  Finish(EndOf(status, unary_.context));
}

}  // namespace warpcall
