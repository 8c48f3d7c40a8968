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
#include "server/transport/inflater.h"

namespace warpcall {
namespace {

// Output bytes of one message: below the 4 MiB that gRPC's clients take by default.
constexpr size_t kOutputChunkBytes = 2 << 20;
// Messages that wait to be sent, beyond which no new window is begun.
constexpr size_t kOutgoingMax = 8;
// A window that the queue has no room for is tried again after what the queue says, at most this.
constexpr int64_t kRetryMsMax = 1'000;

grpc::ByteBuffer ToMessage(const v1::ExecuteStreamResponse& response) {
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

ExecuteStreamCall::ExecuteStreamCall(ExecuteDeps* deps, grpc::CallbackServerContext* context)
    : StreamCall(deps, context, &deps->calls.streams), caller_(Identify(*deps, *context)) {
  strand_.Post([this] {
    if (!caller_.ok()) Fail(caller_.status());
    Advance();
  });
  handover_.Give();
}

void ExecuteStreamCall::OnReadDone(bool ok) {
  handover_.Take();
  // An end that comes too early is the client's mistake, unless the client left or its deadline
  // passed: gRPC has marked the context by now, though OnCancel may come later.
  if (!ok && context_->IsCancelled())
    return strand_.Post([this] { Read(false, absl::CancelledError("the client went away")); });
  if (!ok || !Inflater::IsCompressed(incoming_))
    return strand_.Post([this, ok] { Read(ok, absl::OkStatus()); });
  Hold();
  const int64_t limit = std::min(kStreamMessageBytesMax, MessageLengthMax(*deps_));
  deps_->parts.inflater->InflateAsync(caller_->id, limit, &incoming_,
                                      [this](const absl::Status& status) {
                                        strand_.Post([this, status] {
                                          came_compressed_ = true;
                                          Read(true, status);
                                          Release();
                                        });
                                      });
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
  outgoing_.pop_front();
  if (owed_ > 0) --owed_;
  if (!ok) Fail(absl::CancelledError("the client went away while its results were sent"));
}

absl::Status ExecuteStreamCall::ReadMessage() {
  Slices slices;
  RETURN_IF_ERROR(DumpSlices(incoming_, &slices));
  std::vector<wire::Bytes> fragments;
  for (const grpc::Slice& slice : slices) fragments.push_back(BytesOf(slice));
  wire::StreamMessage message;
  RETURN_IF_ERROR(wire::SplitStreamRequest(fragments, &message));
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
  outgoing_.push_back(ToMessage(response));
  return absl::OkStatus();
}

absl::Status ExecuteStreamCall::CheckInputEnd() const {
  return request_ == nullptr ? absl::OkStatus() : request_->CheckComplete();
}

bool ExecuteStreamCall::HasRoom() const {
  return windows_.size() < kWindowsUnderWayMax && outgoing_.size() < kOutgoingMax;
}

void ExecuteStreamCall::SubmitWindows() {
  while (HasRoom()) {
    std::unique_ptr<Window> window = request_->TakeWindow();
    if (window == nullptr) break;
    const int64_t index = window->index;
    windows_.emplace(index, std::move(window));
  }
  if (HasRoom())
    if (absl::Status status = request_->CheckHeld(); !status.ok()) return Fail(status);
  if (alarm_set_) return;
  for (const auto& [index, window] : windows_) {
    if (window->state == Window::State::kToSubmit) SubmitWindow(window.get());
    if (alarm_set_ || failure_.has_value()) return;
  }
}

void ExecuteStreamCall::SubmitWindow(Window* window) {
  std::unique_ptr<Job> job = request_->JobOf(window);
  job->cancelled = &cancelled_;
  // The slices' memory is gRPC's; nothing else of the window is touched while the job has it.
  job->release_inputs = [window] { window->inputs.clear(); };
  job->done = [this, index = window->index](absl::Status status, StagingBuffers outputs) {
    strand_.Post([this, index, status = std::move(status), buffers = std::move(outputs)]() mutable {
      WindowDone(index, std::move(status), std::move(buffers));
      Advance();
    });
  };
  window->state = Window::State::kSubmitted;
  ++submitted_;
  if (absl::Status status = deps_->engine->Submit(&job); !status.ok())
    WindowDone(window->index, std::move(status), {});
}

void ExecuteStreamCall::WindowDone(int64_t index, absl::Status status, StagingBuffers outputs) {
  --submitted_;
  Window& window = *windows_.find(index)->second;
  if (failure_.has_value()) return;
  if (status.ok()) {
    window.state = Window::State::kRan;
    window.outputs = std::move(outputs);
    return request_->NoteRan(window);
  }
  // A request that has begun, or has another window accepted, waits for room: it is held back, not
  // refused.
  const auto pushback_ms = RetryPushbackMs(status);
  const bool retry = absl::IsResourceExhausted(status) && pushback_ms.value_or(-1) >= 0 &&
                     (request_->AnyRan() || submitted_ > 0) && !window.inputs.empty();
  if (!retry) return Fail(status);
  window.state = Window::State::kToSubmit;
  RetryLater(*pushback_ms);
}

void ExecuteStreamCall::RetryLater(int64_t pushback_ms) {
  if (std::exchange(alarm_set_, true)) return;
  const auto pause = std::chrono::milliseconds(std::clamp<int64_t>(pushback_ms, 1, kRetryMsMax));
  alarm_.Set(std::chrono::system_clock::now() + pause, [this](bool) {
    strand_.Post([this] {
      alarm_set_ = false;
      Advance();
    });
  });
}

void ExecuteStreamCall::Advance() {
  if (request_ != nullptr && !failure_.has_value()) SubmitWindows();
  if (request_ != nullptr && !failure_.has_value()) SendRanWindows();
  if (request_ == nullptr && header_waits_ && !failure_.has_value()) {
    header_waits_ = false;
    if (absl::Status status = ReadMessage(); !status.ok()) Fail(status);
    if (!failure_.has_value()) return Advance();
  }
  if (!writing_ && !outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front());
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
                     windows_.empty() && request_->held_bytes() > 0;
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

// In order, but for windows that wait for room: those behind them hold what they wait for.
void ExecuteStreamCall::SendRanWindows() {
  for (auto next = windows_.begin(); next != windows_.end();) {
    if (next->second->state == Window::State::kSubmitted) break;
    if (next->second->state == Window::State::kToSubmit) {
      ++next;
      continue;
    }
    std::unique_ptr<Window> window = std::move(next->second);
    next = windows_.erase(next);
    SendWindow(std::move(window));
  }
  if (request_->AllRan() && windows_.empty()) SendDone();
}

void ExecuteStreamCall::SendWindow(std::unique_ptr<Window> window) {
  for (size_t i = 0; i < window->outputs.size(); ++i) {
    const size_t bytes = window->outputs[i].bytes();
    if (bytes == 0) continue;
    const grpc::Slice whole = SliceOver(std::move(window->outputs[i]));
    for (size_t begin = 0; begin < bytes; begin += kOutputChunkBytes) {
      const size_t end = std::min(begin + kOutputChunkBytes, bytes);
      std::string prefix;
      wire::AppendChunkPrefix(
          {static_cast<int32_t>(i),
           request_->OutputOffset(*window, i) + static_cast<int64_t>(begin), end - begin},
          &prefix);
      const grpc::Slice slices[] = {grpc::Slice(prefix), whole.sub(begin, end)};
      outgoing_.emplace_back(slices, 2);
    }
  }
}

void ExecuteStreamCall::SendDone() {
  v1::ExecuteStreamResponse response;
  request_->Describe(response.mutable_done());
  outgoing_.push_back(ToMessage(response));
  owed_ = outgoing_.size();
  request_->End(absl::OkStatus());
  request_.reset();
  ++requests_done_;
}

void ExecuteStreamCall::Fail(const absl::Status& status) {
  if (failure_.has_value() || finished_) return;
  cancelled_.store(true);
  // Unless the client left or the server ends, a failure before any request's header counts as a
  // refused request.
  if (request_ == nullptr && !absl::IsCancelled(status) && !absl::IsUnavailable(status))
    request_ = std::make_unique<StreamRequest>(deps_, context_, caller_);
  failure_ = request_ == nullptr ? EndOf(status, context_) : request_->End(status);
  if (alarm_set_) alarm_.Cancel();
  const size_t kept = std::max<size_t>(owed_, writing_ ? 1 : 0);
  while (outgoing_.size() > kept) outgoing_.pop_back();
  for (const auto& [index, window] : windows_)
    if (window->state == Window::State::kSubmitted)
      deps_->engine->Cancel(window->trace.device, window->key);
}

void ExecuteStreamCall::EndIfIdle() {
  if (finished_ || writing_ || !outgoing_.empty() || submitted_ > 0 || alarm_set_) return;
  const bool complete = input_ended_ && request_ == nullptr && !header_waits_;
  if (!failure_.has_value() && !complete) return;
  finished_ = true;
  if (held_alarm_set_) held_alarm_.Cancel();
  const grpc::Status end = failure_.value_or(grpc::Status::OK);
  AddLoadReport(*deps_, static_cast<absl::StatusCode>(end.error_code()), context_);
  Finish(end);
}

}  // namespace warpcall
