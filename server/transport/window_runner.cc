#include "server/transport/window_runner.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "proto/wire/chunk.h"
#include "server/engine/refusal.h"

namespace warpcall {
namespace {

// Output bytes of one message: below the 4 MiB that gRPC's clients take by default.
constexpr size_t kOutputChunkBytes = 2 << 20;
// A window for which the queue has no room is submitted again after the queue's delay, but at the
// latest after this time.
constexpr int64_t kRetryMsMax = 1'000;

}  // namespace

void WindowRunner::Run(StreamRequest* request, absl::FunctionRef<bool()> has_room) {
  request_ = request;
  while (has_room()) {
    std::unique_ptr<Window> window = request->TakeWindow();
    if (window == nullptr) break;
    Add(std::move(window));
  }
  if (has_room())
    if (absl::Status status = request->CheckHeld(); !status.ok()) return owner_.fail(status);
  if (alarm_set_) return;
  for (const auto& [index, window] : windows_) {
    if (window->state == Window::State::kToSubmit) Submit(window.get());
    if (alarm_set_ || cancelled_) return;
  }
}

void WindowRunner::Add(std::unique_ptr<Window> added) {
  Window* const window = added.get();
  windows_.emplace(window->index, std::move(added));
  if (owner_.prepare == nullptr) return;
  window->state = Window::State::kPreparing;
  ++preparing_;
  owner_.prepare(window, [this, window] {
    owner_.strand->Post([this, window] {
      --preparing_;
      window->state = Window::State::kToSubmit;
      owner_.advance();
    });
  });
}

void WindowRunner::Submit(Window* window) {
  std::unique_ptr<Job> job = request_->JobOf(window);
  job->cancelled = &job_cancelled_;
  // The slices' memory is gRPC's; nothing else of the window is touched while the job has it.
  job->release_inputs = [window] {
    window->inputs.clear();
    window->inputs_released = true;
  };
  job->done = [this, index = window->index](absl::Status status, StagingBuffers outputs) {
    owner_.strand->Post(
        [this, index, status = std::move(status), buffers = std::move(outputs)]() mutable {
          Done(index, std::move(status), std::move(buffers));
          owner_.advance();
        });
  };
  window->state = Window::State::kSubmitted;
  ++submitted_;
  if (absl::Status status = deps_->engine->Submit(&job); !status.ok())
    Done(window->index, std::move(status), {});
}

void WindowRunner::Done(int64_t index, absl::Status status, StagingBuffers outputs) {
  --submitted_;
  Window& window = *windows_.find(index)->second;
  if (cancelled_) return;
  if (status.ok()) {
    window.state = Window::State::kRan;
    window.outputs = std::move(outputs);
    return request_->RecordRan(window);
  }
  // A request that has begun, or has another window accepted, waits for room: it is held back, not
  // refused.
  const auto pushback_ms = RetryPushbackMs(status);
  const bool retry = absl::IsResourceExhausted(status) && pushback_ms.value_or(-1) >= 0 &&
                     (request_->AnyRan() || submitted_ > 0) && !window.inputs_released;
  if (!retry) return owner_.fail(status);
  window.state = Window::State::kToSubmit;
  RetryLater(*pushback_ms);
}

void WindowRunner::RetryLater(int64_t pushback_ms) {
  if (std::exchange(alarm_set_, true)) return;
  const auto pause = std::chrono::milliseconds(std::clamp<int64_t>(pushback_ms, 1, kRetryMsMax));
  alarm_.Set(std::chrono::system_clock::now() + pause, [this](bool) {
    owner_.strand->Post([this] {
      alarm_set_ = false;
      owner_.advance();
    });
  });
}

std::unique_ptr<Window> WindowRunner::TakeRan() {
  for (auto next = windows_.begin(); next != windows_.end(); ++next) {
    if (next->second->state == Window::State::kSubmitted) break;
    if (next->second->state != Window::State::kRan) continue;
    std::unique_ptr<Window> window = std::move(next->second);
    windows_.erase(next);
    return window;
  }
  return nullptr;
}

void WindowRunner::Cancel() {
  cancelled_ = true;
  job_cancelled_.store(true);
  if (alarm_set_) alarm_.Cancel();
  for (const auto& [index, window] : windows_)
    if (window->state == Window::State::kSubmitted)
      deps_->engine->Cancel(window->trace.device, window->key);
}

std::deque<grpc::ByteBuffer> ToChunks(const StreamRequest& request, Window* window) {
  std::deque<grpc::ByteBuffer> chunks;
  for (size_t i = 0; i < window->outputs.size(); ++i) {
    const size_t bytes = window->outputs[i].bytes();
    if (bytes == 0) continue;
    const grpc::Slice whole = SliceOver(std::move(window->outputs[i]));
    for (size_t begin = 0; begin < bytes; begin += kOutputChunkBytes) {
      const size_t end = std::min(begin + kOutputChunkBytes, bytes);
      std::string prefix;
      wire::AppendChunkPrefix(
          {static_cast<int32_t>(i), request.OutputOffset(*window, i) + static_cast<int64_t>(begin),
           end - begin},
          &prefix);
      const grpc::Slice slices[] = {grpc::Slice(prefix), whole.sub(begin, end)};
      chunks.emplace_back(slices, 2);
    }
  }
  return chunks;
}

}  // namespace warpcall
