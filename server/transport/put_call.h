// One Put call: a tensor that comes in chunks. A job copies each window to the device while later
// ones come.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/access/sha256.h"
#include "server/transport/stream_request.h"
#include "server/transport/watched_reactors.h"
#include "server/transport/window_runner.h"

namespace warpcall {

// Reads the messages of one Put and names its tensor; the owner runs the windows between. All in
// one strand but Hash.
class PutReader {
 public:
  PutReader(ExecuteDeps* deps, grpc::CallbackServerContext* context,
            absl::StatusOr<Principal> caller)
      : deps_(deps), request_(deps, context, std::move(caller), Request::Kind::kTransfer) {}

  // Takes a header or a chunk.
  absl::Status Read(const grpc::ByteBuffer& received);
  // No message follows. Answers a question: the client stated a digest and sent no bytes.
  absl::Status ReadEnd();
  // Adds a window to the digest. REQUIRES: HasDigest, and it is the next window.
  void Hash(const Window& window);
  // Names the tensor, all of which is on the device.
  absl::Status NameTensor();

  StreamRequest& request() { return request_; }
  bool is_open() const { return is_open_; }  // windows may come
  bool HasDigest() const { return digest_ != nullptr; }
  size_t bytes() const { return spec_.bytes(); }  // of the tensor, once its header has come
  const v1::PutResponse& response() const { return response_; }  // without a handle: not yet

 private:
  absl::Status ReadHeader(const wire::FragmentedBytes& payload, const Slices& slices);
  absl::Status Open();
  absl::Status Answer();
  void FillIn(const Residents::Named& named, int device, bool existed);

  ExecuteDeps* const deps_;
  StreamRequest request_;
  bool has_header_ = false;
  bool is_open_ = false;
  TensorSpec spec_;
  std::string device_;  // empty: the server chooses
  Residents::Terms terms_;
  std::unique_ptr<Sha256Hash> digest_;  // null: the client stated none
  v1::PutResponse response_;
};

// Flow control holds a client back that sends faster than the device takes it. A call without
// progress for CallLimits::send_ns_max ends, and leaves nothing.
class PutCall final : public StreamCall<WatchedReader> {
 public:
  // gRPC owns the call, and `response` outlives it.
  PutCall(ExecuteDeps* deps, grpc::CallbackServerContext* context, grpc::ByteBuffer* response);

  void OnReadDone(bool ok) override {
    handover_.Take();
    PostRead(ok, reader_.request().request().key().principal, &incoming_);
  }

 private:
  ~PutCall() override;
  void Read(bool ok, absl::Status status) override;
  void Fail(const absl::Status& status) override;
  void Advance() override;

  void Hash(Window* window, absl::AnyInvocable<void()> ready);
  void WatchProgress();
  void End(const grpc::Status& status);

  grpc::ByteBuffer* const response_;
  PutReader reader_;
  WindowRunner windows_;
  grpc::ByteBuffer incoming_;
  bool reading_ = false;
  bool input_ended_ = false;
  grpc::Alarm alarm_;  // holds the call while it is set
  bool alarm_set_ = false;
  int64_t received_bytes_ = 0;  // at the alarm before
  std::optional<grpc::Status> failure_;
  bool finished_ = false;
};

}  // namespace warpcall
