// The reactors of every method: gRPC's, with each answer under SendWatch. WatchedUnary is the one
// of calls that answer once, StreamCall the one of calls that go on.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "server/transport/grpc_1_51/handover.h"
#include "server/transport/grpc_1_51/inline_reactor.h"
#include "server/transport/inflater.h"
#include "server/transport/open_streams.h"
#include "server/transport/request.h"
#include "server/transport/send_watch.h"
#include "server/transport/strand.h"

namespace warpcall {

// Owned by gRPC: deletes itself when the call is over.
class WatchedUnary : public InlineReactor<grpc::ServerUnaryReactor> {
 public:
  WatchedUnary(const ExecuteDeps& deps, const Unary& unary)
      : unary_(unary), sending_(deps.parts.sends, unary.context) {
    handover_.Give();
  }

  // Sends the response, where `end` is OK, and `end`. The reactor may be gone when this returns.
  void Finish(const grpc::Status& end) {
    sending_.Begin(unary_.response->Length());
    handover_.Give();
    grpc::ServerUnaryReactor::Finish(end);
  }

  void OnDone() final {
    handover_.Take();
    delete this;
  }

 protected:
  ~WatchedUnary() override = default;

  const Unary unary_;
  Handover handover_;

 private:
  SendWatch::Sending sending_;
};

// The reactor of a method that answers with a stream. `Base`: grpc::ServerWriteReactor or
// grpc::ServerBidiReactor of grpc::ByteBuffer. Owned by gRPC until OnOver.
template <typename Base>
class WatchedStream : public Base {
 public:
  void OnWriteDone(bool ok) final {
    handover_.Take();
    sending_.End();
    OnWritten(ok);
  }

  // gRPC's context may be gone before a stream that deletes itself later.
  void OnDone() final {
    handover_.Take();
    sending_.End();
    OnOver();
  }

 protected:
  WatchedStream(const ExecuteDeps& deps, grpc::CallbackServerContext* context)
      : sending_(deps.parts.sends, context) {}

  // REQUIRES: no other write is under way.
  void StartWrite(const grpc::ByteBuffer* message) {
    sending_.Begin(message->Length());
    handover_.Give();
    Base::StartWrite(message);
  }

  // REQUIRES: no write is under way, or the call was cancelled.
  void Finish(const grpc::Status& end) {
    sending_.Begin(0);
    handover_.Give();
    Base::Finish(end);
  }

  // gRPC's OnWriteDone and OnDone.
  virtual void OnWritten(bool ok) = 0;
  virtual void OnOver() = 0;

  Handover handover_;

 private:
  SendWatch::Sending sending_;
};

// The reactor of a method that reads a stream and answers once.
class WatchedReader : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  void OnDone() final {
    handover_.Take();
    sending_.End();
    OnOver();
  }

 protected:
  WatchedReader(const ExecuteDeps& deps, grpc::CallbackServerContext* context)
      : sending_(deps.parts.sends, context) {}

  // Sends the response, of so many bytes, and `end`.
  void FinishWith(const grpc::Status& end, size_t bytes) {
    sending_.Begin(bytes);
    handover_.Give();
    grpc::ServerReadReactor<grpc::ByteBuffer>::Finish(end);
  }

  virtual void OnWritten(bool ok) = 0;
  virtual void OnOver() = 0;

  Handover handover_;

 private:
  SendWatch::Sending sending_;
};

using WatchedWriter = WatchedStream<grpc::ServerWriteReactor<grpc::ByteBuffer>>;
using WatchedBidi = WatchedStream<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>;

// A call whose events come one after the other, in a strand: every method but OnReadDone runs
// there. One read and one write are outstanding at most. `Watched`: WatchedReader, WatchedWriter or
// WatchedBidi.
// Lives until gRPC and all others that hold it have released it.
template <typename Watched>
class StreamCall : public Watched, private OpenStream {
 public:
  void OnCancel() override {
    PostTold([this] {
      Fail(absl::CancelledError("the client went away"));
      Advance();
    });
  }

 protected:
  // `streams`: who ends the call when the drain is over; null: something else does.
  StreamCall(ExecuteDeps* deps, grpc::CallbackServerContext* context, OpenStreams* streams)
      : Watched(*deps, context), deps_(deps), context_(context), streams_(streams) {
    deps->calls.open.fetch_add(1);
    if (streams_ != nullptr) streams_->Add(this);
  }
  ~StreamCall() override { deps_->calls.open.fetch_sub(1); }

  // OnReadDone may look at what the strand wrote before.
  void StartRead(grpc::ByteBuffer* message) {
    Watched::handover_.Give();
    Watched::StartRead(message);
  }
  // Posts an event that gRPC tells of.
  void PostTold(Strand::Event event) {
    Watched::handover_.Take();
    strand_.Post(std::move(event));
  }
  // For OnReadDone of calls whose messages are chunks: inflates `message`, where `ok`, on the
  // account of `principal`, and posts Read. REQUIRES: handover_ was taken.
  void PostRead(bool ok, uint64_t principal, grpc::ByteBuffer* message) {
    // An end that comes too early is the client's mistake, unless the client left or its deadline
    // passed: gRPC has marked the context by now, though OnCancel may come later.
    if (!ok && context_->IsCancelled())
      return strand_.Post([this] { Read(false, absl::CancelledError("the client went away")); });
    if (!ok || !Inflater::IsCompressed(*message))
      return strand_.Post([this, ok] { Read(ok, absl::OkStatus()); });
    Hold();
    deps_->parts.inflater->InflateAsync(principal, ChunkMessageBytesMax(*deps_), message,
                                        [this](const absl::Status& status) {
                                          strand_.Post([this, status] {
                                            came_compressed_ = true;
                                            Read(true, status);
                                            Release();
                                          });
                                        });
  }
  void Hold() override { holders_.fetch_add(1); }
  // The last event of the strand, whoever holds the call longest.
  void Release() {
    if (holders_.fetch_sub(1) == 1) delete this;
  }

  // Takes what was read: a message where `ok`, or the end. `status`: why neither counts.
  virtual void Read([[maybe_unused]] bool ok, [[maybe_unused]] absl::Status status) {}
  // gRPC has sent the message, or has not.
  virtual void Written(bool) {}
  // The call ends with `status` as soon as nothing is under way.
  virtual void Fail(const absl::Status& status) = 0;
  // Does what can be done by now.
  virtual void Advance() = 0;

  ExecuteDeps* const deps_;
  grpc::CallbackServerContext* const context_;
  Strand strand_;
  bool writing_ = false;
  bool came_compressed_ = false;  // at least one message that was read

 private:
  void OnWritten(bool ok) final {
    strand_.Post([this, ok] {
      writing_ = false;
      Written(ok);
      Advance();
    });
  }
  void OnOver() final {
    if (streams_ != nullptr) streams_->Remove(this);
    strand_.Post([this] { Release(); });
  }
  void EndAndRelease(const absl::Status& status) final {
    strand_.Post([this, status] {
      Fail(status);
      Advance();
      Release();
    });
  }

  OpenStreams* const streams_;
  std::atomic<int> holders_{1};  // gRPC, until OnDone
};

}  // namespace warpcall
