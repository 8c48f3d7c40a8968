// Memory that a real server keeps after a peak of
// requests. malloc alone would keep all of it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kStagingRoomMib = 64;
constexpr int kWaiting = 24;
constexpr int64_t kWaitingMessageMib = 16;
// Room for memory that a server holds from its first requests on, beside their tensors.
constexpr int64_t kSlackMib = 48;
constexpr char kGaveBack[] = "gave free memory back";

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(MemoryGivenBackTest, MemoryOfMessagesGoesBackWhenTheServerRests) {
  if (ProgramsAreSanitized()) GTEST_SKIP() << "AddressSanitizer's allocator is not malloc's";
  ServerProcess server(
      FlagsForHeld({absl::StrCat("--staging_mib=", kStagingRoomMib), "--max_message_mib=32",
                    "--devices=cpu", "--lanes_per_device=1", "--log_level=debug"}));
  const int64_t before = server.ResidentBytes();
  // The second time staging is resident already.
  for (int time = 1; time <= 2; ++time) {
    Gate gate;
    PendingCall held(server, gate.HeldRequest());
    ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
    const size_t tries = Count(server.log(), kGaveBack);
    std::vector<std::unique_ptr<PendingCall>> waiting;
    for (int i = 0; i < kWaiting; ++i)
      waiting.push_back(std::make_unique<PendingCall>(
          server, Request("identity", {FloatTensor(kWaitingMessageMib * kMib / 4)})));
    EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_queue_depth") == kWaiting; }));
    EXPECT_GE(server.ResidentBytes() - before, kWaiting * kWaitingMessageMib * kMib);
    // The server rests while they wait, too: memory in use then must go back later all the same.
    ASSERT_TRUE(Eventually([&] { return Count(server.log(), kGaveBack) > tries; }));
    gate.Open();
    EXPECT_EQ(held.Code(), grpc::StatusCode::OK);
    for (const auto& call : waiting) EXPECT_EQ(call->Code(), grpc::StatusCode::OK);
    EXPECT_TRUE(Eventually([&] {
      return server.ResidentBytes() - before <= (kStagingRoomMib + kSlackMib) * kMib;
    })) << (server.ResidentBytes() - before) / kMib
        << " MiB more than before, time " << time;
  }
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
