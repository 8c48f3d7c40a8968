// Reads and writes ExecuteStream's messages; transport is elsewhere. Internal to the library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/calls/borrowed.h"
#include "client/cpp/calls/incoming.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/codec/output_buffers.h"
#include "client/cpp/rpc/channel.h"
#include "proto/wire/chunk.h"
#include "warpcall/client.h"

namespace warpcall::client {

// Source and destination of a stream's tensor bytes. Threads as for StreamHandler: Read in one,
// Begin and Write in the other.
class TensorIo {
 public:
  virtual ~TensorIo() = default;
  // The bytes [offset, offset + bytes) of an input.
  virtual absl::StatusOr<Piece> Read(size_t input, int64_t offset, int64_t bytes) = 0;
  virtual absl::Status Begin(const std::vector<TensorSpec>& outputs) = 0;
  virtual absl::Status Write(size_t output, int64_t offset, const wire::FragmentedBytes& bytes) = 0;
};

// INVALID_ARGUMENT, which begins with `name`, unless the tensor has the bytes of its type and
// shape.
absl::Status CheckBytes(absl::string_view name, const Tensor& tensor);

// Between memory and memory. `call` outlives it.
class MemoryIo final : public TensorIo {
 public:
  // INVALID_ARGUMENT unless every input has the bytes of its type and shape.
  static absl::Status Check(const Call& call);

  explicit MemoryIo(const Call& call) : call_(call) {}

  absl::StatusOr<Piece> Read(size_t input, int64_t offset, int64_t bytes) override;
  absl::Status Begin(const std::vector<TensorSpec>& outputs) override;
  absl::Status Write(size_t output, int64_t offset, const wire::FragmentedBytes& bytes) override;

  // REQUIRES of both: the stream is over. Nobody reads borrowed inputs any more when this returns.
  void WaitUntilReleased() { borrowed_.WaitUntilReleased(); }
  // REQUIRES: every byte was written.
  std::vector<Tensor> ReleaseOutputs() { return outputs_.Release(); }

 private:
  const Call& call_;
  BorrowedBytes borrowed_;
  OutputBuffers outputs_;
};

// Between the callbacks of a StreamCall, which outlives it.
class CallbackIo final : public TensorIo {
 public:
  explicit CallbackIo(const StreamCall& call) : call_(call) {}

  absl::StatusOr<Piece> Read(size_t input, int64_t offset, int64_t bytes) override;
  absl::Status Begin(const std::vector<TensorSpec>& outputs) override;
  absl::Status Write(size_t output, int64_t offset, const wire::FragmentedBytes& bytes) override;

 private:
  const StreamCall& call_;
};

// One request over one stream.
class ExecuteStreamSession final : public StreamHandler {
 public:
  // `io` outlives the session. INVALID_ARGUMENT when a shape is none.
  static absl::StatusOr<std::unique_ptr<ExecuteStreamSession>> Make(const StreamCall& call,
                                                                    int64_t chunk_bytes,
                                                                    TensorIo* io);

  absl::StatusOr<std::vector<Piece>> NextMessage() override;
  absl::Status HandleMessage(Fragments message) override;

  // True once the header was handed out for sending, or a header arrived. REQUIRES, as for
  // TakeResult: no other thread uses the session.
  bool begun() const { return header_sent_ || header_came_; }
  // Returns the result that the server sent at the end; INTERNAL when none came.
  absl::StatusOr<Result> TakeResult();

 private:
  struct Side {
    int64_t bytes = 0;  // size of the whole tensor
    int64_t elements = 0;
    int64_t sent = 0;
  };

  ExecuteStreamSession(std::string header, std::vector<Side> inputs, int64_t chunk_bytes,
                       TensorIo* io);

  absl::Status HandleHeader(Fragments header);
  absl::Status HandleChunk(Fragments payload);
  absl::Status HandleDone(Fragments done);

  TensorIo* const io_;
  // The sending thread's.
  const std::string header_;
  const int64_t chunk_bytes_;
  bool header_sent_ = false;
  std::vector<Side> inputs_;
  // The receiving thread's.
  bool keeps_outputs_ = false;  // since Make
  bool header_came_ = false;
  IncomingTensors outputs_;
  std::optional<Result> result_;
};

}  // namespace warpcall::client
