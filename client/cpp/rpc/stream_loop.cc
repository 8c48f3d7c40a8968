#include "client/cpp/rpc/stream_loop.h"

#include <system_error>
#include <thread>
#include <utility>

#include "client/cpp/rpc/message.h"
#include "proto/common/check.h"

namespace warpcall::client {

StreamLoop::StreamLoop(const Origin& origin, const char* method, StreamHandler* handler,
                       const CallTerms& terms)
    : handler_(handler), cancellation_(terms.cancellation), queued_(origin.options->queued) {
  SetTerms(terms, *origin.options, &context_);
  call_ = origin.stub->PrepareCall(&context_, method, &queue_);
}

Reply StreamLoop::Run() {
  if (cancellation_ != nullptr) cancellation_->Add(&context_);
  call_->StartCall(Begin(kStarted));
  std::thread helper;
  try {
    helper = std::thread([this] { Serve(); });
  } catch (const std::system_error&) {
    // No thread to be had: this one does both directions, in turn.
  }
  Serve();
  if (helper.joinable()) helper.join();
  if (cancellation_ != nullptr) cancellation_->Remove(&context_);

  Reply reply = EndOfCall(end_, context_);
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) {
    reply.status = failure_;
    reply.pushback_ms.reset();
  }
  return reply;
}

void StreamLoop::Serve() {
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
    On(static_cast<Event>(reinterpret_cast<uintptr_t>(tag)), ok);
    const int pending = pending_.fetch_sub(1);
    WARPCALL_DCHECK(pending >= 1, pending);
    if (pending == 1) queue_.Shutdown();
  }
}

// A message is awaited until there is none any more; then, and only then, the end.
void StreamLoop::On(Event event, bool ok) {
  switch (event) {
    case kStarted:
      if (!ok) return AwaitEnd();
      begun_ = true;
      // The first message would wait for the initial metadata as well, but they may come long
      // before.
      if (queued_ == nullptr) {
        Receive();
      } else {
        call_->ReadInitialMetadata(Begin(kAccepted));
      }
      return Send();
    case kAccepted:
      if (ok) ReportPosition(context_, queued_);
      return Receive();
    case kSent:
      // Not sent: the call is ending, as the receiving side will learn.
      if (ok && !failed()) Send();
      return;
    case kReceived: {
      if (!ok || failed()) return AwaitEnd();
      Reply message;
      absl::Status status = TakeFragments(received_, &message);
      received_.Clear();
      if (status.ok()) status = handler_->HandleMessage(message.fragments);
      if (status.ok()) return Receive();
      Fail(std::move(status));
      return AwaitEnd();
    }
    case kAllSent:
    case kEnded:
      return;
  }
}

void StreamLoop::Send() {
  absl::StatusOr<std::vector<Piece>> message = handler_->NextMessage();
  if (!message.ok()) return Fail(message.status());
  if (message->empty()) return call_->WritesDone(Begin(kAllSent));
  const absl::StatusOr<grpc::ByteBuffer> bytes = ToByteBuffer(*message);
  if (!bytes.ok()) return Fail(bytes.status());
  call_->Write(*bytes, Begin(kSent));
}

void StreamLoop::Receive() { call_->Read(&received_, Begin(kReceived)); }

void StreamLoop::AwaitEnd() { call_->Finish(&end_, Begin(kEnded)); }

void StreamLoop::Fail(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    failure_.Update(std::move(status));
  }
  context_.TryCancel();
}

bool StreamLoop::failed() {
  absl::MutexLock lock(&mutex_);
  return !failure_.ok();
}

void* StreamLoop::Begin(Event event) {
  pending_.fetch_add(1);
  return reinterpret_cast<void*>(static_cast<uintptr_t>(event));
}

}  // namespace warpcall::client
