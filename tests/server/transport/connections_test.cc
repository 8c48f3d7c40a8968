#include "server/transport/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/system/listen.h"

namespace warpcall {
namespace {

using Verdict = Connections::Verdict;

TEST(ConnectionLimits, LeaveDescriptorsToTheServerAndConnectionsToOthers) {
  // 540 descriptors, 20 of them open: connections get half of the rest.
  const ConnectionLimits few = ConnectionLimitsFor({540, 20, 7680});
  EXPECT_EQ(few.all, 264);
  EXPECT_EQ(few.from_one_source, 198);
  EXPECT_EQ(ConnectionLimitsFor({4096, 40, 7680}).all, 3800);
  const ConnectionLimits many = ConnectionLimitsFor({1 << 20, 40, 9000});
  EXPECT_EQ(many.all, 8192);
  EXPECT_EQ(ConnectionLimitsFor({1 << 20, 40, 416}).all, 416);
  EXPECT_EQ(many.from_one_source, 6144);
  EXPECT_EQ(ConnectionLimitsFor({10, 12, 7680}).all, 1);
  EXPECT_EQ(ConnectionLimitsFor({10, 12, 7680}).from_one_source, 1);
}

// Sockets that nobody opened: a descriptor is open as long as it has an inode here.
class ConnectionsTest : public ::testing::Test {
 protected:
  Connections Make(int all, int from_one_source) {
    return Connections(
        {all, from_one_source}, [this] { return now_ns_; },
        [this](int descriptor) {
          ++looked_at_;
          const auto found = inodes_.find(descriptor);
          return found == inodes_.end() ? 0 : found->second;
        });
  }

  Verdict Open(Connections* connections, int descriptor, const std::string& source,
               const std::string& peer = "") {
    inodes_[descriptor] = next_inode_++;
    const Verdict verdict = connections->Admit(descriptor, {source, peer});
    if (verdict != Verdict::kAdmitted) inodes_.erase(descriptor);
    return verdict;
  }

  int64_t now_ns_ = 1;
  std::map<int, uint64_t> inodes_;
  uint64_t next_inode_ = 100;
  int looked_at_ = 0;
};

TEST_F(ConnectionsTest, OneSourceLeavesRoomForOthers) {
  Connections connections = Make(4, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Open(&connections, i, "a"), Verdict::kAdmitted);
  EXPECT_EQ(Open(&connections, 3, "a"), Verdict::kTooManyFromSource);
  EXPECT_FALSE(connections.full());
  EXPECT_EQ(Open(&connections, 3, "b"), Verdict::kAdmitted);
  EXPECT_TRUE(connections.full());
  EXPECT_EQ(Open(&connections, 4, "c"), Verdict::kTooMany);
  EXPECT_EQ(connections.open(), 4);
}

// Two sockets are open; one of them is not the connection that had its descriptor.
TEST(ConnectionsShutDownTest, ClosesConnectionsAndNothingElse) {
  int known[2], other[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, known), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
  uint64_t other_inode = 1;
  Connections connections(
      {8, 8}, [] { return int64_t{1}; },
      [&](int descriptor) { return descriptor == other[0] ? other_inode : uint64_t{1}; });
  EXPECT_EQ(connections.Admit(known[0], {"a", ""}), Verdict::kAdmitted);
  EXPECT_EQ(connections.Admit(other[0], {"a", ""}), Verdict::kAdmitted);
  other_inode = 2;
  connections.ShutDown();
  char byte = 0;
  EXPECT_EQ(recv(known[1], &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(recv(other[1], &byte, 1, MSG_DONTWAIT), -1);
  for (const int descriptor : {known[0], known[1], other[0], other[1]}) close(descriptor);
}

TEST_F(ConnectionsTest, WhatHasEndedMakesRoomOnceALimitIsMet) {
  Connections connections = Make(4, 3);
  for (int i = 0; i < 3; ++i) Open(&connections, i, "a");
  inodes_.erase(1);
  inodes_[2] = 7;  // a file of the server's has the number now
  EXPECT_EQ(Open(&connections, 4, "a"), Verdict::kAdmitted);
  EXPECT_EQ(connections.open(), 2);
  Open(&connections, 5, "a");
  Open(&connections, 6, "b");
  inodes_.clear();
  now_ns_ += Connections::kSweepNs;
  EXPECT_FALSE(connections.full());
  EXPECT_EQ(connections.open(), 0);
}

TEST_F(ConnectionsTest, ADescriptorThatIsUsedAgainIsOneConnection) {
  Connections connections = Make(2, 2);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(Open(&connections, 5, absl::StrCat("source ", i)), Verdict::kAdmitted);
  EXPECT_EQ(connections.open(), 1);
}

TEST_F(ConnectionsTest, ArePeersByName) {
  Connections connections = Make(4, 4);
  Open(&connections, 1, "uid 1", "ipv4:127.0.0.1:1");
  Open(&connections, 2, "uid 2", "fd:2");
  EXPECT_EQ(connections.FindSource("ipv4:127.0.0.1:1"), "uid 1");
  EXPECT_EQ(connections.FindSource("fd:2"), "uid 2");
  EXPECT_EQ(connections.FindSource("fd:1"), "");
  EXPECT_TRUE(connections.IsOpen("fd:2"));
  EXPECT_FALSE(connections.IsOpen("fd:1"));
  inodes_.erase(2);
  EXPECT_FALSE(connections.IsOpen("fd:2"));
  EXPECT_TRUE(connections.IsOpen("ipv4:127.0.0.1:1"));
  EXPECT_TRUE(connections.IsAnyOpenFrom("uid 1"));
  EXPECT_FALSE(connections.IsAnyOpenFrom("uid 2"));
}

TEST_F(ConnectionsTest, ANameThatIsUsedAgainIsTheNewerConnections) {
  Connections connections = Make(4, 1);
  Open(&connections, 1, "uid 1", "ipv4:127.0.0.1:1");
  inodes_.erase(1);
  Open(&connections, 2, "uid 2", "ipv4:127.0.0.1:1");
  EXPECT_EQ(connections.FindSource("ipv4:127.0.0.1:1"), "uid 2");
  Open(&connections, 3, "uid 1");  // which forgets the older one
  EXPECT_EQ(connections.open(), 2);
  EXPECT_TRUE(connections.IsOpen("ipv4:127.0.0.1:1"));
}

TEST_F(ConnectionsTest, AFloodOfRefusalsSearchesOncePerPeriod) {
  Connections connections = Make(1000, 1000);
  for (int i = 0; i < 1000; ++i) Open(&connections, i, "a");
  looked_at_ = 0;
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(Open(&connections, 1000, "a"), Verdict::kTooManyFromSource);
  EXPECT_EQ(looked_at_, 1000);
  now_ns_ += Connections::kSweepNs;
  Open(&connections, 1000, "a");
  EXPECT_EQ(looked_at_, 2000);
}

TEST(Connections, TellRealSocketsThatAreClosedFromOpenOnes) {
  int64_t now_ns = 1;
  Connections connections({1, 1}, [&] { return now_ns; });
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(connections.Admit(ends[0], {"a", "fd"}), Verdict::kAdmitted);
  EXPECT_TRUE(connections.full());
  EXPECT_TRUE(connections.IsOpen("fd"));
  for (const int end : ends) close(end);
  EXPECT_FALSE(connections.IsOpen("fd"));
  now_ns += Connections::kSweepNs;
  EXPECT_FALSE(connections.full());
}

}  // namespace
}  // namespace warpcall
