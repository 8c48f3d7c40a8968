// Runs one call with streams both ways. Internal to the library.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/rpc/channel.h"

namespace warpcall::client {

// For one call. Two threads serve the call's queue. At any time one message is being sent and one
// awaited; whichever thread learns that one of them is through asks the handler what comes next. So
// neither direction waits for the other, and what is done for each is done in order.
class StreamLoop {
 public:
  struct Origin {
    grpc::GenericStub* stub;
    const ChannelOptions* options;
  };

  // `handler` as in Channel::Stream.
  StreamLoop(const Origin& origin, const char* method, StreamHandler* handler,
             const CallTerms& terms);

  // Returns when the call has ended and no thread is in the handler any more.
  Reply Run();
  // After Run: whether the call found a server. The handler was asked for no message otherwise.
  bool begun() const { return begun_; }

 private:
  enum Event : uintptr_t { kStarted, kAccepted, kSent, kAllSent, kReceived, kEnded };

  void Serve();
  void On(Event event, bool ok);
  void Send();
  void Receive();
  void AwaitEnd();
  void Fail(absl::Status status);
  bool failed();
  // The tag of an operation that begins now.
  void* Begin(Event event);

  StreamHandler* const handler_;
  Cancellation* const cancellation_;       // or null
  const std::function<void(int)> queued_;  // or null
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  // Operations of which the queue has not told yet, or whose handling may begin others.
  std::atomic<int> pending_{0};
  bool begun_ = false;
  grpc::ByteBuffer received_;
  grpc::Status end_;
  absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // the handler's
};

}  // namespace warpcall::client
