#include "server/transport/inspect_stream_call.h"

#include <utility>

namespace warpcall {

InspectStreamCall::InspectStreamCall(ExecuteDeps* deps, Inspection kind,
                                     grpc::CallbackServerContext* context)
    : StreamCall(deps, context, nullptr),
      InspectCall(deps, kind, context, &(StreamCall::handover_)) {
  in_parts_ = true;
}

InspectStreamCall* InspectStreamCall::Start(ExecuteDeps* deps, Inspection kind,
                                            grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request) {
  auto* call = new InspectStreamCall(deps, kind, context);
  call->Begin(const_cast<grpc::ByteBuffer*>(request));
  return call;
}

void InspectStreamCall::AnswerPart(std::string bytes) {
  const absl::StatusOr<grpc::ByteBuffer> message = ToMessage(std::move(bytes));
  if (!message.ok()) return;  // longer than any part is
  strand_.Post([this, part = *message] {
    waiting_.push_back(part);
    Advance();
  });
}

void InspectStreamCall::Answer(absl::StatusOr<std::string> bytes) {
  const absl::StatusOr<grpc::ByteBuffer> message =
      bytes.ok() ? ToMessage(*std::move(bytes)) : bytes.status();
  strand_.Post([this, message, end = End(message.status())] {
    if (message.ok()) waiting_.push_back(*message);
    end_ = end;
    Advance();
  });
}

void InspectStreamCall::Advance() {
  if (writing_) return;
  if (!waiting_.empty()) {
    writing_ = true;
    sent_ = waiting_.front();
    waiting_.pop_front();
    StartWrite(&sent_);
  } else if (end_.has_value()) {
    Finish(*std::exchange(end_, std::nullopt));
  }
}

}  // namespace warpcall
