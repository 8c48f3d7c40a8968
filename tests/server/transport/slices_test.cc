#include "server/transport/slices.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace warpcall {
namespace {

constexpr size_t kQuotaBytes = 1 << 20;
constexpr size_t kMessageBytes = 200'000;
constexpr int kClients = 8;
constexpr int kKeepers = 3;
constexpr int kMessagesMin = 1000;
constexpr absl::Duration kKept = absl::Milliseconds(2);

// Answers every message with nothing, and leaves its slices to threads that are not gRPC's, which
// release them.
class Keeping final : public grpc::CallbackGenericService {
 public:
  Keeping() {
    for (int i = 0; i < kKeepers; ++i) keepers_.emplace_back([this] { LetGo(); });
  }
  ~Keeping() override {
    {
      absl::MutexLock lock(&mutex_);
      over_ = true;
    }
    for (std::thread& keeper : keepers_) keeper.join();
  }

  int taken() const { return taken_; }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Reactor(this);
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(Keeping* keeping) : keeping_(keeping) { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (ok) keeping_->Take(message_);
      message_.Clear();
      Finish(grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    Keeping* const keeping_;
    grpc::ByteBuffer message_;
  };

  void Take(const grpc::ByteBuffer& message) {
    Slices slices;
    if (!slices.TakeAllOf(message)) return;
    ++taken_;
    absl::MutexLock lock(&mutex_);
    kept_.push_back(std::move(slices));
  }

  void LetGo() {
    absl::MutexLock lock(&mutex_);
    while (true) {
      mutex_.Await(absl::Condition(
          +[](Keeping* k) { return k->over_ || !k->kept_.empty(); }, this));
      if (kept_.empty()) return;
      Slices slices = std::move(kept_.front());
      kept_.pop_front();
      mutex_.Unlock();
      absl::SleepFor(kKept);
      slices.Clear();
      mutex_.Lock();
    }
  }

  std::atomic<int> taken_{0};
  absl::Mutex mutex_;
  std::deque<Slices> kept_;
  bool over_ = false;
  std::vector<std::thread> keepers_;
};

void Send(const std::string& address, const std::atomic<bool>& over) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  const grpc::Slice slice(std::string(kMessageBytes, 'x'));
  const grpc::ByteBuffer message(&slice, 1);
  while (!over) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    auto call = stub.PrepareUnaryCall(&context, "/any/Method", message, &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
  }
}

TEST(SlicesTest, GoOnAnyThreadWhileGrpcWaitsForTheirMemory) {
  Keeping keeping;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetResourceQuota(grpc::ResourceQuota("test").Resize(kQuotaBytes));
  builder.RegisterCallbackGenericService(&keeping);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  std::atomic<bool> over{false};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&] { Send("127.0.0.1:" + std::to_string(port), over); });
  while (keeping.taken() < kMessagesMin) absl::SleepFor(absl::Milliseconds(10));
  over = true;
  for (std::thread& client : clients) client.join();
  server->Shutdown();
}

}  // namespace
}  // namespace warpcall
