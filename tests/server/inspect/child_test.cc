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
  return child.Receive(kBytesMax);
}

std::string Answer(const AnswerHeader& header, const std::string& rest) {
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes + rest;
}

TEST(ChildTest, AnswersAndErrorsTravel) {
  EXPECT_EQ(*Receive(Answer({.message_bytes = 0, .payload_bytes = 5}, "12345")), "12345");
  const absl::Status status =
      Receive(Answer({.code = 8, .has_pushback = 1, .pushback_ms = 70, .message_bytes = 3}, "bad"))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "bad");
  EXPECT_EQ(RetryPushbackMs(status), 70);
}

TEST(ChildTest, WhatClaimsToBeTooLongIsRefusedByItsLimit) {
  for (const uint64_t bytes : {uint64_t{kBytesMax} + 1, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status payload = Receive(Answer({.payload_bytes = bytes}, "x")).status();
    EXPECT_EQ(payload.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(payload.message().find("536870912"), absl::string_view::npos) << payload;
    const absl::Status message =
        Receive(Answer({.code = 13, .message_bytes = bytes}, "x")).status();
    EXPECT_EQ(message.code(), absl::StatusCode::kInternal);
    EXPECT_NE(message.message().find("65536"), absl::string_view::npos) << message;
  }
}

TEST(ChildTest, WhatClaimsMuchAndSendsLittleTakesLittle) {
  const int64_t before_kib = PeakKib();
  EXPECT_TRUE(absl::IsInternal(Receive(Answer({.payload_bytes = kBytesMax}, "little")).status()));
  EXPECT_LT(PeakKib() - before_kib, 64 << 10);
}

TEST(ChildTest, NonsenseIsAnError) {
  EXPECT_TRUE(absl::IsInternal(Receive("short").status()));
  EXPECT_TRUE(absl::IsInternal(Receive(Answer({.code = 17}, "")).status()));
  EXPECT_TRUE(absl::IsInternal(Receive(Answer({.code = -1}, "")).status()));
  EXPECT_EQ(RetryPushbackMs(
                Receive(Answer({.code = 8, .has_pushback = 200, .pushback_ms = -9}, "")).status()),
            kNeverRetry);
}

}  // namespace
}  // namespace warpcall::inspect
