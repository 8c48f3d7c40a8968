// The reactors of every method: gRPC's, with each answer under SendWatch.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/transport/handover.h"
#include "server/transport/inline_reactor.h"
#include "server/transport/request.h"
#include "server/transport/send_watch.h"

namespace warpcall {

// The reactor of a unary method. `Base`: grpc::ServerUnaryReactor, or InlineReactor of it. Owned by
// gRPC: deletes itself when the call is over.
template <typename Base>
class WatchedUnary : public Base {
 public:
  WatchedUnary(const ExecuteDeps& deps, const Unary& unary)
      : unary_(unary), sending_(deps.sends, unary.context) {
    handover_.Give();
  }

  // Sends the response, where `end` is OK, and `end`. The reactor may be gone when this returns.
  void Finish(const grpc::Status& end) {
    sending_.Begin(unary_.response->Length());
    handover_.Give();
    Base::Finish(end);
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

using InlineUnary = WatchedUnary<InlineReactor<grpc::ServerUnaryReactor>>;

// The reactor of a method that answers with a stream. `Base`: grpc::ServerWriteReactor or
// grpc::ServerBidiReactor of grpc::ByteBuffer. Owned by gRPC until OnOver.
template <typename Base>
class WatchedStream : public Base {
 public:
  void OnWriteDone(bool ok) final {
    sending_.End();
    OnWritten(ok);
  }

  // gRPC's context may be gone before a stream that deletes itself later.
  void OnDone() final {
    sending_.End();
    OnOver();
  }

 protected:
  WatchedStream(const ExecuteDeps& deps, grpc::CallbackServerContext* context)
      : sending_(deps.sends, context) {}

  // REQUIRES: no other write is under way.
  void StartWrite(const grpc::ByteBuffer* message) {
    sending_.Begin(message->Length());
    Base::StartWrite(message);
  }

  // REQUIRES: no write is under way, or the call was cancelled.
  void Finish(const grpc::Status& end) {
    sending_.Begin(0);
    Base::Finish(end);
  }

  // gRPC's OnWriteDone and OnDone.
  virtual void OnWritten(bool ok) = 0;
  virtual void OnOver() = 0;

 private:
  SendWatch::Sending sending_;
};

using WatchedWriter = WatchedStream<grpc::ServerWriteReactor<grpc::ByteBuffer>>;
using WatchedBidi = WatchedStream<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>;

}  // namespace warpcall
