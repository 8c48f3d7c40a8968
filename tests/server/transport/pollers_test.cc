#include "server/transport/grpc_1_51/pollers.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/eventually.h"

namespace warpcall {
namespace {

constexpr int64_t kSmall = 4096;
constexpr int64_t kLarge = Pollers::kLargeBytes;

// Returns true once two of gRPC's several callback threads have run and so got their name.
bool HasTwoThreads() {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ostringstream name;  // stays empty where the thread ends meanwhile
    name << std::ifstream(thread.path() / "comm").rdbuf();
    count += name.str() == "nexting_thread\n";
  }
  return count >= 2;
}

// A server that knows no method: callers get an answer all the same.
class PollersTest : public ::testing::Test {
 protected:
  PollersTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    pollers_ = std::make_unique<Pollers>(1, [this] { return now_ns_.load(); });
    // Begin waits for no longer than a server may take to start.
    EXPECT_TRUE(testing::Eventually(HasTwoThreads));
    pollers_->Begin();
  }

  bool IsAnswered() {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Status status;
    grpc::ByteBuffer answer;
    const auto call =
        stub_->PrepareUnaryCall(&context, "/any", grpc::ByteBuffer(nullptr, 0), &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    return queue.Next(&tag, &ok) && status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  }
  void BecomeCalm() { now_ns_ += Pollers::kCalmNs; }
  bool SomePark() {
    return testing::Eventually([this] { return pollers_->parked() > 0; });
  }
  bool AllAreBack() {
    return testing::Eventually([this] { return pollers_->parked() == 0; });
  }

  std::atomic<int64_t> now_ns_{5};
  grpc::CallbackGenericService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<Pollers> pollers_;
};

TEST_F(PollersTest, SmallRequestsArePolledForByFew) {
  EXPECT_TRUE(IsAnswered());
  BecomeCalm();
  pollers_->Observe(kSmall);
  EXPECT_TRUE(SomePark());
  for (int i = 0; i < 10; ++i) {
    pollers_->Observe(kSmall);
    EXPECT_TRUE(IsAnswered());
  }
}

TEST_F(PollersTest, ALargeOneBringsAllBackUntilItIsCalm) {
  BecomeCalm();
  pollers_->Observe(kSmall);
  EXPECT_TRUE(SomePark());
  pollers_->Observe(kLarge);
  EXPECT_TRUE(AllAreBack());
  now_ns_ += Pollers::kCalmNs - 1;
  pollers_->Observe(kSmall);
  EXPECT_EQ(pollers_->parked(), 0);
  ++now_ns_;
  EXPECT_TRUE(testing::Eventually([this] {
    pollers_->Observe(kSmall);
    return pollers_->parked() > 0;
  }));
}

TEST_F(PollersTest, NobodyParksAtTheBeginning) {
  pollers_->Observe(kSmall);
  EXPECT_TRUE(IsAnswered());
  EXPECT_EQ(pollers_->parked(), 0);
}

TEST_F(PollersTest, WhoWantsAllHasThem) {
  Pollers all(0, [this] { return now_ns_.load(); });
  all.Begin();
  BecomeCalm();
  all.Observe(kSmall);
  EXPECT_TRUE(IsAnswered());
  EXPECT_EQ(all.parked(), 0);
}

// One thread at least answers, whatever comes in whatever order, and the end waits for nobody.
TEST_F(PollersTest, AnswersGoOnWhileTheyComeAndGo) {
  std::atomic<bool> over{false};
  std::vector<std::thread> noters;
  for (const int64_t bytes : {kSmall, kSmall, kLarge})
    noters.emplace_back([&, bytes] {
      while (!over) {
        now_ns_ += bytes == kSmall ? Pollers::kCalmNs / 4 : 1;
        pollers_->Observe(bytes);
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(IsAnswered());
  over = true;
  for (std::thread& noter : noters) noter.join();
  pollers_ = nullptr;
  EXPECT_TRUE(IsAnswered());
}

}  // namespace
}  // namespace warpcall
