// Child and parent with a peer whose memory is corrupted: whatever comes over the socket is
// answered with an error, and takes no more memory than it has bytes.
#include "server/inspect/child.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>

#include "server/engine/retry_pushback.h"

namespace warpcall::inspect {
namespace {

constexpr size_t kBytesMax = size_t{512} << 20;

int64_t PeakKib() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// What the server makes of an answer of these bytes, after which the child is gone.
absl::StatusOr<std::string> Receive(const std::string& bytes) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Child child(pair[0]);
  EXPECT_EQ(write(pair[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(pair[1]);
  absl::StatusOr<Answer> answer = child.Receive(kBytesMax);
  if (!answer.ok()) return answer.status();
  return std::move(answer->payload);
}

std::string Bytes(const AnswerHeader& header, const std::string& rest) {
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes + rest;
}

TEST(ChildTest, AnswersAndErrorsTravel) {
  EXPECT_EQ(*Receive(Bytes({.message_bytes = 0, .payload_bytes = 5}, "12345")), "12345");
  const absl::Status status =
      Receive(Bytes({.code = 8, .has_pushback = 1, .pushback_ms = 70, .message_bytes = 3}, "bad"))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "bad");
  EXPECT_EQ(RetryPushbackMs(status), 70);
}

TEST(ChildTest, KnowsTheProcessesCpuTime) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Child child(pair[0], getpid());  // as if this process were it
  const int64_t before_ns = child.CpuNs();
  EXPECT_GT(before_ns, 0);
  while (child.CpuNs() < before_ns + 1'000'000) {
  }
  // As if it had crashed, and this process had its id since.
  close(pair[1]);
  EXPECT_EQ(child.CpuNs(), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_EQ(Child(pair[0]).CpuNs(), 0);
  close(pair[1]);
}

// A sender that forgets the flag ends its answer with the first part.
TEST(ChildTest, PartsComeOneByOneBeforeTheAnswer) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Child child(pair[0]);
  ASSERT_TRUE(child.Send("go").ok());
  const absl::Status served = ServeParent(
      pair[1],
      [&](const std::string& request) -> absl::StatusOr<std::string> {
        EXPECT_TRUE(SendPart(pair[1], request + " 1").ok());
        EXPECT_TRUE(SendPart(pair[1], "").ok());
        return request + " 3";
      },
      [] {});
  EXPECT_TRUE(served.ok()) << served;
  for (const char* const expected : {"go 1", "", "go 3"}) {
    const absl::StatusOr<Answer> answer = child.Receive(kBytesMax);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->payload, expected);
    EXPECT_EQ(answer->more, answer->payload != "go 3");
  }
  close(pair[1]);
  EXPECT_TRUE(absl::IsInternal(child.Receive(kBytesMax).status()));
}

TEST(ChildTest, WhatClaimsToBeTooLongIsRefusedByItsLimit) {
  for (const uint64_t bytes : {uint64_t{kBytesMax} + 1, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status payload = Receive(Bytes({.payload_bytes = bytes}, "x")).status();
    EXPECT_EQ(payload.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(payload.message().find("536870912"), absl::string_view::npos) << payload;
    const absl::Status message = Receive(Bytes({.code = 13, .message_bytes = bytes}, "x")).status();
    EXPECT_EQ(message.code(), absl::StatusCode::kInternal);
    EXPECT_NE(message.message().find("65536"), absl::string_view::npos) << message;
  }
}

TEST(ChildTest, WhatClaimsMuchAndSendsLittleTakesLittle) {
  const int64_t before_kib = PeakKib();
  EXPECT_TRUE(absl::IsInternal(Receive(Bytes({.payload_bytes = kBytesMax}, "little")).status()));
  EXPECT_LT(PeakKib() - before_kib, 64 << 10);
}

TEST(ChildTest, NonsenseIsAnError) {
  EXPECT_TRUE(absl::IsInternal(Receive("short").status()));
  EXPECT_TRUE(absl::IsInternal(Receive(Bytes({.code = 17}, "")).status()));
  EXPECT_TRUE(absl::IsInternal(Receive(Bytes({.code = -1}, "")).status()));
  EXPECT_EQ(RetryPushbackMs(
                Receive(Bytes({.code = 8, .has_pushback = 200, .pushback_ms = -9}, "")).status()),
            kNeverRetry);
}

}  // namespace
}  // namespace warpcall::inspect
