// The windows of a stream's request that are under way: takes them when their bytes have come,
// submits them, and tries again those that the queue has no room for.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/transport/strand.h"
#include "server/transport/stream_request.h"

namespace warpcall {

// Belongs to a call, in whose strand everything here runs. The call lives until IsIdle.
class WindowRunner {
 public:
  struct Owner {
    Strand* strand;
    std::function<void(const absl::Status&)> fail;
    std::function<void()> advance;  // a window has run, or has to be tried again
    // Called with each window, which is submitted once `ready` was called, on any thread. Null:
    // none waits.
    std::function<void(Window*, absl::AnyInvocable<void()> ready)> prepare = nullptr;
  };
  WindowRunner(ExecuteDeps* deps, Owner owner) : deps_(deps), owner_(std::move(owner)) {}

  // Takes complete windows of `request`, which outlives them, while `has_room`, and submits them.
  void Run(StreamRequest* request, absl::FunctionRef<bool()> has_room);
  // The next window that has run; null: none. In order, but for windows that wait for room: those
  // behind them hold what they wait for.
  std::unique_ptr<Window> TakeRan();
  // From now on no window is submitted; jobs that wait end.
  void Cancel();

  bool HasRoom() const { return windows_.size() < kWindowsUnderWayMax; }
  bool IsEmpty() const { return windows_.empty(); }
  // Nothing will call back.
  bool IsIdle() const { return submitted_ == 0 && preparing_ == 0 && !alarm_set_; }

 private:
  void Add(std::unique_ptr<Window> window);
  void Submit(Window* window);
  void Done(int64_t index, absl::Status status, StagingBuffers outputs);
  void RetryLater(int64_t pushback_ms);

  ExecuteDeps* const deps_;
  const Owner owner_;
  StreamRequest* request_ = nullptr;
  std::map<int64_t, std::unique_ptr<Window>> windows_;
  int submitted_ = 0;
  int preparing_ = 0;
  bool cancelled_ = false;
  std::atomic<bool> job_cancelled_{false};
  grpc::Alarm alarm_;
  bool alarm_set_ = false;
};

// Messages that wait to be sent, beyond which no new window is begun.
inline constexpr size_t kOutgoingMax = 8;

// The window's outputs as messages of a chunk each, for ExecuteStreamResponse or GetResponse.
std::deque<grpc::ByteBuffer> ToChunks(const StreamRequest& request, Window* window);

}  // namespace warpcall
