// Channel, answers and Child with a peer whose memory is corrupted: any input on the socket ends
// with an error, and takes no more memory than it has bytes.
#include "server/process/answer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/compiled/program.h"
#include "server/engine/refusal.h"
#include "server/process/child.h"
#include "server/process/role.h"

namespace warpcall::process {
namespace {

constexpr size_t kBytesMax = size_t{512} << 20;

int64_t PeakKib() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

struct Ends {
  Ends() {
    auto sockets = MakeSockets(SOCK_STREAM);
    EXPECT_TRUE(sockets.ok());
    near = Channel(std::move(sockets->first), absl::Milliseconds(1));
    far = std::make_unique<Channel>(std::move(sockets->second));
  }
  Channel near{-1};
  std::unique_ptr<Channel> far;
};

// Returns the result that the server reads from these bytes, after which the child is gone.
absl::StatusOr<std::string> Receive(const std::string& bytes) {
  Ends ends;
  EXPECT_EQ(write(ends.far->socket(), bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  ends.far.reset();
  absl::StatusOr<Answer> answer = ReceiveAnswer(ends.near, kBytesMax);
  if (!answer.ok()) return answer.status();
  return std::move(answer->result);
}

// A message with these announced sizes, whatever follows.
std::string Frame(uint64_t head_bytes, uint64_t body_bytes, const std::string& rest) {
  const uint64_t sizes[] = {head_bytes, body_bytes};
  return absl::StrCat(Channel::BytesOf(sizes), rest);
}

std::string Bytes(const AnswerHeader& header, const std::string& message, const std::string& body) {
  return Frame(sizeof(header) + message.size(), body.size(),
               absl::StrCat(Channel::BytesOf(header), message, body));
}

TEST(AnswerTest, AnswersAndErrorsTravel) {
  EXPECT_EQ(*Receive(Bytes({}, "", "12345")), "12345");
  const absl::Status status =
      Receive(Bytes({.code = 8, .has_pushback = 1, .pushback_ms = 70}, "bad", "")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "bad");
  EXPECT_EQ(RetryPushbackMs(status), 70);
}

TEST(AnswerTest, EveryStatusArrivesAsItWasSent) {
  Ends ends;
  const absl::Status refused = WithRetryPushback(absl::ResourceExhaustedError("full"), 17);
  const absl::Status wrong = compiled::AsCompileError(absl::InternalError("line 7"));
  const absl::Status large = absl::InternalError(std::string(1 << 20, 'x'));
  for (const absl::Status& status : {refused, wrong, large})
    ASSERT_TRUE(SendAnswer(*ends.far, {status}).ok());
  EXPECT_EQ(ReceiveAnswer(ends.near, 0)->result.status(), refused);
  EXPECT_EQ(ReceiveAnswer(ends.near, 0)->result.status(), wrong);
  const absl::Status cut = ReceiveAnswer(ends.near, 0)->result.status();
  EXPECT_GT(cut.message().size(), Channel::kHeadBytesMax / 2);
}

TEST(ChildTest, KnowsTheProcessesCpuTime) {
  Ends ends;
  const pid_t pid = fork();
  if (pid == 0) {
    // The test's far end stands for this process's, which works until it is killed.
    close(ends.far->socket());
    for (volatile int work = 0;;) work = work ^ 1;
  }
  const Child child(std::move(ends.near), pid);
  while (child.CpuNs() < 1'000'000) {
  }
  // From here on it looks crashed, and another process may have its id.
  ends.far.reset();
  EXPECT_EQ(child.CpuNs(), 0);
  child.Kill();
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  Ends others;
  EXPECT_EQ(Child(std::move(others.near)).CpuNs(), 0);
}

TEST(ChildTest, OneThatDoesNotEndByItselfIsKilled) {
  Ends ends;
  const pid_t pid = fork();
  if (pid == 0)
    for (;;) raise(SIGSTOP);
  { const Child child(std::move(ends.near), pid); }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
}

// A sender that forgets the flag ends its answer with the first part.
TEST(AnswerTest, PartsComeOneByOneBeforeTheAnswer) {
  Ends ends;
  ASSERT_TRUE(ends.near.Send("head", "go").ok());
  shutdown(ends.near.socket(), SHUT_WR);  // no more requests
  const absl::Status served =
      ServeRequests(*ends.far, [&](const Message& request) -> absl::StatusOr<std::string> {
        EXPECT_EQ(request.head, "head");
        EXPECT_TRUE(SendAnswer(*ends.far, {request.body + " 1", true}).ok());
        EXPECT_TRUE(SendAnswer(*ends.far, {"", true}).ok());
        return request.body + " 3";
      });
  EXPECT_TRUE(served.ok()) << served;
  for (const char* const expected : {"go 1", "", "go 3"}) {
    const absl::StatusOr<Answer> answer = ReceiveAnswer(ends.near, kBytesMax);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer->result, expected);
    EXPECT_EQ(answer->more, *answer->result != "go 3");
  }
  ends.far.reset();
  EXPECT_TRUE(absl::IsUnavailable(ReceiveAnswer(ends.near, kBytesMax).status()));
}

TEST(ChannelTest, WhatClaimsToBeTooLongIsRefusedByItsLimit) {
  for (const uint64_t bytes : {uint64_t{kBytesMax} + 1, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status body = Receive(Frame(0, bytes, "x")).status();
    EXPECT_EQ(body.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(body.message(), absl::StrCat(bytes, " bytes; the limit is 536870912"));
    const absl::Status head = Receive(Frame(bytes, 0, "x")).status();
    EXPECT_EQ(head.code(), absl::StatusCode::kInternal);
    EXPECT_NE(head.message().find("65536"), absl::string_view::npos) << head;
  }
}

TEST(ChannelTest, WhatClaimsMuchAndSendsLittleTakesLittle) {
  const int64_t before_kib = PeakKib();
  EXPECT_TRUE(absl::IsUnavailable(Receive(Frame(0, kBytesMax, "little")).status()));
  EXPECT_LT(PeakKib() - before_kib, 64 << 10);
}

TEST(ChannelTest, ASenderThatStopsInTheMiddleIsNotWaitedFor) {
  Ends ends;
  const std::string bytes = Frame(0, 5, "123");
  ASSERT_EQ(write(ends.far->socket(), bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  const absl::Status received = ends.near.Receive(kBytesMax).status();
  EXPECT_TRUE(absl::IsUnavailable(received));
  EXPECT_NE(received.message().find("in the middle"), absl::string_view::npos) << received;
}

TEST(ChannelTest, AReceiverThatDoesNotReadIsNotWaitedFor) {
  const Ends ends;
  EXPECT_TRUE(absl::IsUnavailable(ends.near.Send("", std::string(64 << 20, 'x'))));
}

TEST(ChannelTest, AStructHasItsSize) {
  const Ends ends;
  ASSERT_TRUE(ends.far->SendStruct(int64_t{-5}).ok());
  EXPECT_EQ(*ends.near.ReceiveStruct<int64_t>(), -5);
  ASSERT_TRUE(ends.far->SendStruct(int32_t{7}).ok());
  const absl::Status received = ends.near.ReceiveStruct<int64_t>().status();
  EXPECT_EQ(received.message(), "it sent 4 bytes where a message has 8");
}

TEST(AnswerTest, NonsenseIsAnError) {
  EXPECT_TRUE(absl::IsUnavailable(Receive("short").status()));
  EXPECT_TRUE(absl::IsInternal(Receive(Frame(5, 0, "short")).status()));
  EXPECT_TRUE(absl::IsInternal(Receive(Bytes({.code = 17}, "", "")).status()));
  EXPECT_TRUE(absl::IsInternal(Receive(Bytes({.code = -1}, "", "")).status()));
  const AnswerHeader wild = {.code = 8, .has_pushback = 200, .pushback_ms = -9};
  EXPECT_EQ(RetryPushbackMs(Receive(Bytes(wild, "", "")).status()), kNeverRetry);
}

TEST(EndWatchTest, SeesTheOtherEndClose) {
  Ends ends;
  std::atomic<int> gone{0};
  {
    const EndWatch kept(ends.near, [&] { gone += 100; });
  }
  const EndWatch watch(ends.near, [&] { ++gone; });
  ends.far.reset();
  while (gone.load() == 0) std::this_thread::yield();
  EXPECT_EQ(gone.load(), 1);
}

using Words = std::vector<std::string>;

TEST(RoleTest, EveryFlagComesBackFromItsWords) {
  for (const Role role : {Role::kInspect, Role::kSelfTest, Role::kWorker, Role::kCompiler}) {
    const RoleFlags flags = {.role = role,
                             .device = "cuda:0",
                             .fault_injection = true,
                             .compile_cache = "/a folder",
                             .log_level = "debug",
                             .log_format = "json",
                             .method = "describe",
                             .traceparent = "00-1-2-01",
                             .in_parts = true,
                             .deadline_ns = -5,
                             .limit_ns = 9,
                             .unavailable_rows = {"3:no --such=thing, here", "7:"},
                             .push_run_ns = 7,
                             .gpu_architecture = 90,
                             .gpu_multiprocessors = 132,
                             .gpu_shared_memory = 232448,
                             .gpu_description = "a GPU, of 1 kind",
                             .depth = "full",
                             .rows = {4, 0},
                             .foreign = true,
                             .cuda_include = "/an include folder",
                             .lanes = 3};
    const Words words = ToWords(flags);
    ASSERT_EQ(FindRole(words.front()), role);
    const auto read = ParseRoleFlags(role, absl::MakeConstSpan(words).subspan(1));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToWords(*read), words);
    EXPECT_EQ(words.size(), 23u);  // the role, and two of unavailable_rows
    EXPECT_EQ(read->unavailable_rows, flags.unavailable_rows);
    EXPECT_EQ(read->rows, flags.rows);
  }
}

TEST(RoleTest, WhatIsNotGivenIsNotSaid) {
  EXPECT_EQ(ToWords({.role = Role::kCompiler}),
            (Words{"compiler", "--deadline_ns=9223372036854775807", "--limit_ns=0",
                   "--push_run_ns=0", "--gpu_architecture=0", "--gpu_multiprocessors=0",
                   "--gpu_shared_memory=0", "--lanes=1"}));
}

TEST(RoleTest, AServersCommandLineNamesNoRole) {
  for (const char* const word : {"", "--devices=cpu", "worker=", "inspect"})
    EXPECT_FALSE(FindRole(word).has_value()) << word;
}

TEST(RoleTest, OtherWordsAreErrors) {
  for (const char* const word : {"--lanes=x", "--rows=1,,2", "--listen=a:1", "cpu", "--device"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRoleFlags(Role::kWorker, {word}).status())) << word;
}

}  // namespace
}  // namespace warpcall::process
