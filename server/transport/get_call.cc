#include "server/transport/get_call.h"

#include <utility>

#include "proto/common/status_macros.h"
#include "server/transport/caller.h"
#include "server/transport/reply.h"

namespace warpcall {

GetCall::GetCall(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                 const grpc::ByteBuffer* request)
    : StreamCall(deps, context, &deps->calls.streams),
      request_(deps, context, Identify(*deps, *context), Request::Kind::kTransfer),
      windows_(deps, {&strand_, [this](const absl::Status& status) { Fail(status); },
                      [this] { Advance(); }}) {
  strand_.Post([this, request] {
    if (absl::Status status = Open(const_cast<grpc::ByteBuffer*>(request)); !status.ok())
      Fail(status);
    Advance();
  });
  handover_.Give();
}

absl::Status GetCall::Open(grpc::ByteBuffer* message) {
  RETURN_IF_ERROR(request_.request().Admit("Get"));
  v1::GetRequest request;
  RETURN_IF_ERROR(ParseSmallMessage(*deps_, message, &request));
  if (request.handle().empty()) return absl::InvalidArgumentError("handle is empty");
  RETURN_IF_ERROR(request_.OpenGet(request.handle()));
  is_open_ = true;
  v1::GetResponse response;
  v1::Tensor& tensor = *response.mutable_header();
  const TensorSpec& spec = request_.request().problem().inputs[0];
  tensor.set_data_type(static_cast<v1::DataType>(spec.data_type));
  tensor.mutable_shape()->Assign(spec.dims.begin(), spec.dims.end());
  tensor.set_handle(request.handle());
  outgoing_.push_back(ToByteBuffer(response));
  return absl::OkStatus();
}

void GetCall::Written(bool ok) {
  outgoing_.pop_front();
  if (!ok) Fail(absl::CancelledError("the client went away while its tensor was sent"));
}

void GetCall::Advance() {
  if (is_open_ && !end_.has_value()) {
    windows_.Run(&request_,
                 [this] { return windows_.HasRoom() && outgoing_.size() < kOutgoingMax; });
    while (const std::unique_ptr<Window> window = windows_.TakeRan())
      for (grpc::ByteBuffer& chunk : ToChunks(request_, window.get()))
        outgoing_.push_back(std::move(chunk));
    if (!end_.has_value() && request_.AllRan() && windows_.IsEmpty())
      end_ = request_.End(absl::OkStatus());
  }
  if (!writing_ && !outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front());
  }
  if (!end_.has_value() || finished_ || writing_ || !outgoing_.empty() || !windows_.IsIdle())
    return;
  finished_ = true;
  Finish(*end_);
}

void GetCall::Fail(const absl::Status& status) {
  if (end_.has_value()) {
    // All of it was under way when the client left.
    while (outgoing_.size() > (writing_ ? 1 : 0)) outgoing_.pop_back();
    return;
  }
  end_ = request_.End(status);
  windows_.Cancel();
  while (outgoing_.size() > (writing_ ? 1 : 0)) outgoing_.pop_back();
}

}  // namespace warpcall
