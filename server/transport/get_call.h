// One Get call: a tensor that is on a device, read in windows. Each is sent while the device copies
// the next.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "server/transport/stream_request.h"
#include "server/transport/watched_reactors.h"
#include "server/transport/window_runner.h"

namespace warpcall {

class GetCall final : public StreamCall<WatchedWriter> {
 public:
  // gRPC owns the call.
  GetCall(ExecuteDeps* deps, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request);

 private:
  ~GetCall() override = default;
  void Written(bool ok) override;
  void Fail(const absl::Status& status) override;
  void Advance() override;

  absl::Status Open(grpc::ByteBuffer* message);

  StreamRequest request_;
  WindowRunner windows_;
  bool is_open_ = false;
  std::deque<grpc::ByteBuffer> outgoing_;
  std::optional<grpc::Status> end_;
  bool finished_ = false;
};

}  // namespace warpcall
