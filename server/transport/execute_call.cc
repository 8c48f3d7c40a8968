#include "server/transport/execute_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/transport/refusals.h"

namespace warpcall {

ExecuteCall::ExecuteCall(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                         const grpc::ByteBuffer* message, grpc::ByteBuffer* response)
    : deps_(deps),
      message_(const_cast<grpc::ByteBuffer*>(message)),
      response_(response),
      request_(deps, context) {
  deps->open_calls.fetch_add(1);
  handover_.Give();
}

ExecuteCall* ExecuteCall::Start(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* call = new ExecuteCall(deps, context, request, response);
  absl::Status status = call->request_.CheckCaller();
  if (status.ok()) status = call->CheckMessage();
  if (status.ok()) {
    status = call->request_.CheckRoom();
    if (!status.ok() && deps->refusals != nullptr) {
      call->message_->Clear();
      deps->refusals->Add([call, status] { call->Finish(status); });
      return call;
    }
  }
  if (status.ok()) status = call->Submit();
  if (!status.ok()) call->Finish(status);
  return call;
}

absl::Status ExecuteCall::CheckMessage() {
  // The client vanished, or its deadline passed, before the message was complete.
  if (!message_->Valid()) return absl::CancelledError("the call ended before its message had come");
  return request_.CheckMessageLength(static_cast<int64_t>(message_->Length()));
}

absl::Status ExecuteCall::Submit() {
  std::unique_ptr<Job> job;
  ASSIGN_OR_RETURN(job, MakeJob());
  // From here on a lane may answer, and this call be gone, at any moment: unless Submit refuses.
  device_.store(job->device);
  return deps_->engine->Submit(&job);
}

absl::StatusOr<std::unique_ptr<Job>> ExecuteCall::MakeJob() {
  if (absl::Status status = decoded_.Decode(*message_); !status.ok()) {
    if (absl::IsResourceExhausted(status))
      request_.trace().reject_reason = RejectReason::kMessageBytes;
    return status;
  }
  RETURN_IF_ERROR(request_.ReadHeader(decoded_.header()));
  const Problem& problem = request_.problem();
  RETURN_IF_ERROR(decoded_.CheckDataBytes(*request_.kernel().op, problem));
  RETURN_IF_ERROR(request_.Choose(decoded_.header(), absl::MakeConstSpan(&problem, 1)));
  std::unique_ptr<Job> job = request_.NewJob(problem);
  RETURN_IF_ERROR(request_.CheckMessageBytes(kInputsData, job->input_bytes));
  if (job->output_bytes > deps_->message_bytes_max)
    RETURN_IF_ERROR(request_.CheckMessageBytes(
        absl::StrCat("the output ", ToString(problem.outputs[0])), job->output_bytes));
  for (size_t i = 0; i < problem.inputs.size(); ++i) job->inputs.push_back(decoded_.data(i).pieces);
  job->cancelled = &cancelled_;
  job->trace = &request_.trace();
  job->release_inputs = [this] {
    decoded_.ReleaseData();
    message_->Clear();
  };
  job->done = [this](absl::Status status, StagingBuffers outputs) {
    Answer(std::move(status), std::move(outputs));
  };
  return job;
}

void ExecuteCall::OnCancel() {
  handover_.Take();
  cancelled_.store(true);
  const int device = device_.load();
  if (device >= 0) deps_->engine->Cancel(device, request_.key());
}

void ExecuteCall::Answer(absl::Status status, StagingBuffers outputs) {
  if (status.ok() && cancelled_.load())
    status = absl::CancelledError("the client went away while the device worked");
  if (status.ok()) {
    alignas(8) char block[1024];  // room for the response without its outputs
    google::protobuf::Arena arena(block, sizeof(block));
    auto* rest = google::protobuf::Arena::CreateMessage<v1::ExecuteResponse>(&arena);
    request_.Describe(rest);
    EncodeResponse(*rest, request_.problem(), std::move(outputs), response_);
  }
  Finish(status);
}

void ExecuteCall::Finish(const absl::Status& status) {
  const grpc::Status end = request_.End(status);
  handover_.Give();
  grpc::ServerUnaryReactor::Finish(end);
}

}  // namespace warpcall
