// A call that a thread of its own waits for, on a connection of its own, and that can be cancelled.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {

class PendingCall {
 public:
  PendingCall(const ServerProcess& server, const v1::ExecuteRequest& request,
              std::chrono::milliseconds timeout = std::chrono::minutes(10))
      : stub_(v1::KernelService::NewStub(Connect(server.address()))) {
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
    thread_ =
        std::thread([this, request] { status_ = stub_->Execute(&context_, request, &response_); });
  }
  // Nobody needs the answer any more.
  ~PendingCall() {
    Cancel();
    Wait();
  }

  void Cancel() { context_.TryCancel(); }
  // Returns how it ended, when it has.
  const grpc::Status& Wait() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  grpc::StatusCode Code() { return Wait().error_code(); }
  std::string pushback_ms() const { return PushbackOf(context_); }

 private:
  const std::unique_ptr<v1::KernelService::Stub> stub_;
  grpc::ClientContext context_;
  v1::ExecuteResponse response_;
  grpc::Status status_;
  std::thread thread_;
};

}  // namespace warpcall::testing
