// One ExecuteStream call: requests one after the other, each read, run and answered in windows, so
// that results leave while later input arrives and a stream holds a bounded amount of memory.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/transport/request.h"
#include "server/transport/stream_request.h"
#include "server/transport/watched_reactors.h"
#include "server/transport/window_runner.h"

namespace warpcall {

// Reading stops while windows are under way, so gRPC's flow control holds a client back that sends
// faster than it reads or than the device works.
class ExecuteStreamCall final : public StreamCall<WatchedBidi> {
 public:
  ExecuteStreamCall(ExecuteDeps* deps, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override {
    handover_.Take();
    PostRead(ok, caller_->id, &incoming_);
  }

 private:
  ~ExecuteStreamCall() override = default;
  void Read(bool ok, absl::Status status) override;
  void Written(bool ok) override;
  // Results of the requests before are sent, or cannot be.
  void Fail(const absl::Status& status) override;
  // Submits, sends, reads, ends.
  void Advance() override;

  absl::Status ReadMessage();
  absl::Status OpenRequest(const wire::FragmentedBytes& header);
  absl::Status CheckInputEnd() const;
  // Returns true if another window may begin.
  bool HasRoom() const { return windows_.HasRoom() && outgoing_.size() < kOutgoingMax; }
  void SendRanWindows();
  void SendDone();
  // Ends a stream that holds inflated input while its client sends next to nothing: others need the
  // memory. Comes back by itself.
  void WatchHeldInput();
  void EndIfIdle();

  // A message to be sent, and tensors whose names it tells.
  struct Outgoing {
    grpc::ByteBuffer message;
    std::vector<std::string> handles;
  };
  void TakeBack(const Outgoing& unsent);

  absl::StatusOr<Principal> caller_;  // the current request's caller
  grpc::ByteBuffer incoming_;
  bool reading_ = false;
  bool input_ended_ = false;
  // A header came before the previous request was fully answered.
  bool header_waits_ = false;
  std::unique_ptr<StreamRequest> request_;
  int64_t requests_done_ = 0;
  WindowRunner windows_;
  std::deque<Outgoing> outgoing_;
  size_t owed_ = 0;  // messages at the front of outgoing_ that belong to requests that ended OK
  grpc::Alarm held_alarm_;  // set by WatchHeldInput; holds the call
  bool held_alarm_set_ = false;
  int64_t waits_since_ns_ = 0;    // start of the wait for kStreamProgressBytes; 0: no wait
  int64_t waits_from_bytes_ = 0;  // bytes that had come at that time
  std::optional<grpc::Status> failure_;
  bool finished_ = false;
};

}  // namespace warpcall
