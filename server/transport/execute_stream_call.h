// One ExecuteStream call: requests one after the other, each read, run and answered in windows, so
// that results leave while later input arrives and a stream holds a bounded amount of memory.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "server/transport/request.h"
#include "server/transport/stream_request.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {

// Reading stops while windows are under way, so gRPC's flow control holds a client back that sends
// faster than it reads or than the device works.
class ExecuteStreamCall final : public StreamCall<WatchedBidi> {
 public:
  ExecuteStreamCall(ExecuteDeps* deps, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;

 private:
  ~ExecuteStreamCall() override = default;
  void Written(bool ok) override;
  // Results of the requests before are sent, or cannot be.
  void Fail(const absl::Status& status) override;
  // Submits, sends, reads, ends.
  void Advance() override;

  // Takes what was read: a message where `ok`, or the end. `status`: why neither counts.
  void Read(bool ok, absl::Status status);
  absl::Status ReadMessage();
  absl::Status OpenRequest(const wire::FragmentedBytes& header);
  absl::Status CheckInputEnd() const;
  // Returns true if another window may begin.
  bool HasRoom() const;
  void SubmitWindows();
  void SubmitWindow(Window* window);
  void WindowDone(int64_t index, absl::Status status, StagingBuffers outputs);
  void RetryLater(int64_t pushback_ms);
  void SendRanWindows();
  void SendWindow(std::unique_ptr<Window> window);
  void SendDone();
  // Ends a stream that holds inflated input while its client sends next to nothing: others need the
  // memory. Comes back by itself.
  void WatchHeldInput();
  void EndIfIdle();

  absl::StatusOr<Principal> caller_;  // the current request's caller
  std::atomic<bool> cancelled_{false};

  grpc::ByteBuffer incoming_;
  bool reading_ = false;
  bool input_ended_ = false;
  // A header came before the previous request was fully answered.
  bool header_waits_ = false;
  std::unique_ptr<StreamRequest> request_;
  int64_t requests_done_ = 0;
  std::map<int64_t, std::unique_ptr<Window>> windows_;  // taken, and not yet handed to outgoing_
  int submitted_ = 0;
  std::deque<grpc::ByteBuffer> outgoing_;
  size_t owed_ = 0;  // messages at the front of outgoing_ that belong to requests that ended OK
  grpc::Alarm alarm_;
  bool alarm_set_ = false;
  bool came_compressed_ = false;  // at least one message was
  grpc::Alarm held_alarm_;        // set by WatchHeldInput; holds the call
  bool held_alarm_set_ = false;
  int64_t waits_since_ns_ = 0;    // start of the wait for kStreamProgressBytes; 0: no wait
  int64_t waits_from_bytes_ = 0;  // bytes that had come at that time
  std::optional<grpc::Status> failure_;
  bool finished_ = false;
};

}  // namespace warpcall
