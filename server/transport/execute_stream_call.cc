#include "server/transport/execute_stream_call.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "proto/wire/chunk.h"
#include "server/engine/refusal.h"
#include "server/transport/caller.h"

namespace warpcall {
namespace {

grpc::ByteBuffer ToMessage(const v1::ExecuteStreamResponse& response) {
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

ExecuteStreamCall::ExecuteStreamCall(ExecuteDeps* deps, grpc::CallbackServerContext* context)
    : StreamCall(deps, context, &deps->calls.streams),
      caller_(Identify(*deps, *context)),
      windows_(deps, {&strand_, [this](const absl::Status& status) { Fail(status); },
                      [this] { Advance(); }}) {
  strand_.Post([this] {
    if (!caller_.ok()) Fail(caller_.status());
    Advance();
  });
  handover_.Give();
}

void ExecuteStreamCall::Read(bool ok, absl::Status status) {
  reading_ = false;
  input_ended_ = !ok;
  if (failure_.has_value()) return EndIfIdle();
  if (status.ok()) status = ok ? ReadMessage() : CheckInputEnd();
  if (!status.ok()) Fail(status);
  Advance();
}

void ExecuteStreamCall::Written(bool ok) {
  if (!ok) TakeBack(outgoing_.front());
  outgoing_.pop_front();
  if (owed_ > 0) --owed_;
  if (!ok) Fail(absl::CancelledError("the client went away while its results were sent"));
}

absl::Status ExecuteStreamCall::ReadMessage() {
  Slices slices;
  wire::StreamMessage message;
  RETURN_IF_ERROR(SplitStreamMessage(incoming_, &slices, &message));
  if (message.member == wire::StreamMember::kChunk) {
    wire::ChunkView chunk;
    RETURN_IF_ERROR(wire::ParseChunk(message.payload.pieces, &chunk));
    incoming_.Clear();
    if (request_ == nullptr) {
      // Nothing, after a request that was complete without it.
      if (requests_done_ > 0 && chunk.data.size == 0) return absl::OkStatus();
      return absl::InvalidArgumentError("a chunk came before the header of its request");
    }
    return request_->Add(chunk, slices);
  }
  if (message.member != wire::StreamMember::kHeader)
    return absl::InvalidArgumentError("a message holds neither a header nor a chunk");
  if (request_ != nullptr) {
    header_waits_ = true;  // in incoming_
    return request_->CheckComplete();
  }
  absl::Status status = OpenRequest(message.payload);
  incoming_.Clear();
  return status;
}

absl::Status ExecuteStreamCall::OpenRequest(const wire::FragmentedBytes& header) {
  // Anew: a stream may go on for longer than a token counts.
  if (requests_done_ > 0) caller_ = Identify(*deps_, *context_);
  request_ = std::make_unique<StreamRequest>(deps_, context_, caller_);
  RETURN_IF_ERROR(request_->Open(header));
  v1::ExecuteStreamResponse response;
  request_->DescribeOutputs(response.mutable_header());
  outgoing_.push_back({ToMessage(response), {}});
  return absl::OkStatus();
}

absl::Status ExecuteStreamCall::CheckInputEnd() const {
  return request_ == nullptr ? absl::OkStatus() : request_->CheckComplete();
}

void ExecuteStreamCall::Advance() {
  if (request_ != nullptr && !failure_.has_value())
    windows_.Run(request_.get(), [this] { return HasRoom(); });
  if (request_ != nullptr && !failure_.has_value()) SendRanWindows();
  if (request_ == nullptr && header_waits_ && !failure_.has_value()) {
    header_waits_ = false;
    if (absl::Status status = ReadMessage(); !status.ok()) Fail(status);
    if (!failure_.has_value()) return Advance();
  }
  if (!writing_ && !outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front().message);
  }
  if (!reading_ && !input_ended_ && !header_waits_ && HasRoom() && !failure_.has_value()) {
    reading_ = true;
    StartRead(&incoming_);
  }
  WatchHeldInput();
  EndIfIdle();
}

void ExecuteStreamCall::WatchHeldInput() {
  // Windows that are under way are the server's to finish, and their results SendWatch's.
  const bool waits = came_compressed_ && !failure_.has_value() && request_ != nullptr &&
                     windows_.IsEmpty() && request_->held_bytes() > 0;
  if (!waits) {
    waits_since_ns_ = 0;
    return;
  }
  const int64_t now_ns = deps_->clock();
  const int64_t received = request_->received_bytes();
  if (waits_since_ns_ == 0 || received - waits_from_bytes_ >= kStreamProgressBytes) {
    waits_since_ns_ = now_ns;
    waits_from_bytes_ = received;
  }
  const int64_t left_ns = waits_since_ns_ + deps_->limits.send_ns_max - now_ns;
  if (left_ns <= 0) return Fail(request_->Stalled());
  if (std::exchange(held_alarm_set_, true)) return;
  Hold();
  held_alarm_.Set(std::chrono::system_clock::now() + std::chrono::nanoseconds(left_ns),
                  [this](bool) {
                    strand_.Post([this] {
                      held_alarm_set_ = false;
                      if (!finished_) Advance();
                      Release();
                    });
                  });
}

void ExecuteStreamCall::SendRanWindows() {
  while (const std::unique_ptr<Window> window = windows_.TakeRan())
    for (grpc::ByteBuffer& chunk : ToChunks(*request_, window.get()))
      outgoing_.push_back({std::move(chunk), {}});
  if (request_->AllRan() && windows_.IsEmpty()) SendDone();
}

void ExecuteStreamCall::TakeBack(const Outgoing& unsent) {
  for (const std::string& handle : unsent.handles)
    deps_->engine->residents().TakeBack(caller_->name, handle);
}

void ExecuteStreamCall::SendDone() {
  v1::ExecuteStreamResponse response;
  if (absl::Status status = request_->Describe(response.mutable_done()); !status.ok())
    return Fail(status);
  outgoing_.push_back({ToMessage(response), {}});
  for (const v1::Tensor& output : response.done().outputs())
    outgoing_.back().handles.push_back(output.handle());
  owed_ = outgoing_.size();
  request_->End(absl::OkStatus());
  request_.reset();
  ++requests_done_;
}

void ExecuteStreamCall::Fail(const absl::Status& status) {
  if (failure_.has_value() || finished_) return;
  // Unless the client left or the server ends, a failure before any request's header counts as a
  // refused request.
  if (request_ == nullptr && !absl::IsCancelled(status) && !absl::IsUnavailable(status))
    request_ = std::make_unique<StreamRequest>(deps_, context_, caller_);
  failure_ = request_ == nullptr ? EndOf(status, context_) : request_->End(status);
  windows_.Cancel();
  const size_t kept = std::max<size_t>(owed_, writing_ ? 1 : 0);
  for (; outgoing_.size() > kept; outgoing_.pop_back()) TakeBack(outgoing_.back());
}

void ExecuteStreamCall::EndIfIdle() {
  if (finished_ || writing_ || !outgoing_.empty() || !windows_.IsIdle()) return;
  const bool complete = input_ended_ && request_ == nullptr && !header_waits_;
  if (!failure_.has_value() && !complete) return;
  finished_ = true;
  if (held_alarm_set_) held_alarm_.Cancel();
  const grpc::Status end = failure_.value_or(grpc::Status::OK);
  AddLoadReport(*deps_, static_cast<absl::StatusCode>(end.error_code()), context_);
  Finish(end);
}

}  // namespace warpcall
