#include "server/transport/reply.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/log/log.h"
#include "server/transport/inflater.h"
#include "server/transport/slices.h"
#include "server/transport/status.h"

namespace warpcall {

absl::Status CheckMessageLengthOf(int64_t bytes, int64_t most) {
  if (bytes <= most) return absl::OkStatus();
  return RefuseFor(RejectReason::kMessageBytes,
                   absl::ResourceExhaustedError(absl::StrCat(
                       "the request has ", bytes, " bytes; the limit of this method is ", most)),
                   kNeverRetry);
}

absl::Status ParseSmallMessage(const ExecuteDeps& deps, grpc::ByteBuffer* message,
                               google::protobuf::MessageLite* parsed) {
  if (!message->Valid()) return absl::CancelledError("the call ended before its message had come");
  RETURN_IF_ERROR(
      CheckMessageLengthOf(static_cast<int64_t>(message->Length()), kSmallMessageBytesMax));
  // Charges no principal: the inflated bytes are gone before this returns.
  RETURN_IF_ERROR(deps.parts.inflater->Inflate(0, kSmallMessageBytesMax, message));
  if (parsed->ParseFromString(Flat(*message))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the message is not a valid ", parsed->GetTypeName(), ": protobuf cannot parse its fields"));
}

void LogRefusal(const ExecuteDeps& deps, const grpc::CallbackServerContext& context,
                const Refusal& refusal) {
  const absl::Status& status = refusal.status;
  const LogLevel level = LogLevelFor(status);
  if (!HasLogLine(deps, status, level)) return;
  std::vector<LogField> fields = {{"peer", PeerOf(deps, context.peer())},
                                  {"method", refusal.method},
                                  {"code", CodeName(status.code())},
                                  {"error", status.message()}};
  AppendCallFields(context, refusal.caller, &fields);
  Log(level, "request failed", fields);
}

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace warpcall
