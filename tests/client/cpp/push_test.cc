// Client::Push against a server whose events the tests decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/client/fake_server.h"
#include "tests/client/patience.h"
#include "tests/e2e/eventually.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using testing::FakeAnswer;
using testing::FakeServer;
using testing::kPatience;
using testing::Patient;
using testing::PushStreamCall;

void WriteEvent(const std::string& event, const PushStreamCall& call) {
  PushEvent message;
  testing::Merge(event, &message);
  call.writer->Write(message);
}

TEST(PushTest, SendsEveryField) {
  std::string seen;
  FakeServer server(EchoInputs);
  server.AnswerPush([&](const PushStreamCall& call) {
    seen = testing::Text(call.request);
    WriteEvent("verdict { status: 'PASSED' }", call);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const auto verdict = client.Push({.code = "// code",
                                    .manifest_json = "{}",
                                    .problems = {{.inputs = {{DataType::kFloat16, {2, 3}}},
                                                  .attributes = {{"axis", int64_t{-1}}}}},
                                    .seed = 5,
                                    .iterations = 7,
                                    .compare_with = {"cuda", "none"},
                                    .check_only = true,
                                    .device = "cuda:0",
                                    .fresh = true,
                                    .with_files = true,
                                    .judge_timeout = absl::Seconds(9)});
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->status(), "PASSED");
  EXPECT_EQ(seen,
            "manifest_json: \"{}\" code: \"// code\""
            " problems { inputs { data_type: DATA_TYPE_FLOAT16 shape: 2 shape: 3 }"
            " attributes { key: \"axis\" value { int_value: -1 } } }"
            " seed: 5 iterations: 7 compare_with: \"cuda\" compare_with: \"none\""
            " check_only: true device: \"cuda:0\" fresh: true with_files: true"
            " timeout_ns: 9000000000");
}

TEST(PushTest, EventsAreThereAsTheyCome) {
  absl::Notification first_came;
  FakeServer server(EchoInputs);
  server.AnswerPush([&](const PushStreamCall& call) {
    WriteEvent("queued { before: 3 }", call);
    // A client that waits for the end before it reports anything never gets there.
    if (!first_came.WaitForNotificationWithTimeout(kPatience))
      return FakeAnswer{absl::InternalError("the first event never came"), std::nullopt};
    WriteEvent("", call);  // of a kind that only newer clients know
    WriteEvent("verdict { status: 'COMPILE_ERROR' reason: 'line 3' }", call);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  std::vector<std::string> events;
  const auto see = [&](const PushEvent& event) {
    events.push_back(testing::Text(event));
    if (events.size() == 1) first_came.Notify();
    return absl::OkStatus();
  };
  const auto verdict = client.Push({.code = "x"}, {.event = see});
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(testing::Text(*verdict), "status: \"COMPILE_ERROR\" reason: \"line 3\"");
  EXPECT_THAT(events,
              ::testing::ElementsAre("queued { before: 3 }", "",
                                     "verdict { status: \"COMPILE_ERROR\" reason: \"line 3\" }"));
}

TEST(PushTest, IsTriedAgainUntilAnEventCame) {
  std::atomic<int> calls{0};
  FakeServer server(EchoInputs);
  server.AnswerPush([&](const PushStreamCall& call) -> FakeAnswer {
    if (calls.fetch_add(1) == 0) return {absl::ResourceExhaustedError("busy"), "1"};
    WriteEvent("queued { before: 1 }", call);
    return {absl::UnavailableError("draining"), "1"};
  });
  Client client(server.address(), Patient());
  const absl::Status ended = client.Push({.code = "x"}).status();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended.message(), "draining");
  EXPECT_EQ(calls.load(), 2);
}

TEST(PushTest, AServerThatKnowsNoPushIsSaidToBeOlder) {
  FakeServer older(EchoInputs), off(EchoInputs);
  off.AnswerPush([](const PushStreamCall&) {
    return FakeAnswer{absl::UnimplementedError("pushes are off: --push=on"), std::nullopt};
  });
  EXPECT_EQ(Client(older.address(), Patient()).Push({.code = "x"}).status(),
            absl::UnimplementedError("the server has no Push: it is older than this client; a "
                                     "newer warpcalld is needed"));
  EXPECT_EQ(Client(off.address(), Patient()).Push({.code = "x"}).status(),
            absl::UnimplementedError("pushes are off: --push=on"));
}

TEST(PushTest, ACancellationEndsIt) {
  std::atomic<bool> server_saw{false};
  absl::Notification begun;
  FakeServer server(EchoInputs);
  server.AnswerPush([&](const PushStreamCall& call) {
    WriteEvent("queued { before: 1 }", call);
    server_saw = testing::Eventually(call.cancelled);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  Cancellation cancellation;
  std::thread canceller([&] {
    begun.WaitForNotification();
    cancellation.Cancel();
  });
  const auto see = [&](const PushEvent&) {
    begun.Notify();
    return absl::OkStatus();
  };
  const auto verdict = client.Push({.code = "x"}, {.event = see, .cancellation = &cancellation});
  canceller.join();
  EXPECT_EQ(verdict.status().code(), absl::StatusCode::kCancelled) << verdict.status();
  server.Stop();  // the handler has ended
  EXPECT_TRUE(server_saw.load());
}

TEST(PushTest, TheDeadlineEndsIt) {
  FakeServer server(EchoInputs);
  server.AnswerPush([](const PushStreamCall& call) {
    testing::Eventually(call.cancelled);
    return FakeAnswer{};
  });
  Client client(server.address());
  EXPECT_EQ(client.Push({.code = "x", .timeout = absl::Milliseconds(200)}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(PushTest, ACallbackThatFailsEndsIt) {
  FakeServer server(EchoInputs);
  server.AnswerPush([](const PushStreamCall& call) {
    WriteEvent("queued { before: 1 }", call);
    testing::Eventually(call.cancelled);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const auto see = [](const PushEvent&) { return absl::DataLossError("no room"); };
  EXPECT_EQ(client.Push({.code = "x"}, {.event = see}).status(), absl::DataLossError("no room"));
}

// Answers that no server means.
TEST(PushTest, MistakesOfTheServerAreSaidToBeThat) {
  FakeServer server(EchoInputs);
  server.AnswerPush([](const PushStreamCall& call) {
    const std::string& what = call.request.code();
    if (what == "twice") WriteEvent("verdict { status: 'PASSED' }", call);
    if (what == "twice") WriteEvent("verdict { status: 'PASSED' }", call);
    for (int i = 0; what == "many" && i < 10001; ++i) WriteEvent("queued {}", call);
    PushEvent timed;
    for (int i = 0; what == "results" && i < 1001; ++i) timed.mutable_timed()->add_results();
    if (what == "results") call.writer->Write(timed);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  for (const auto& [code, why] : {std::pair("none", "the stream ended before the verdict"),
                                  {"twice", "an event after the verdict"},
                                  {"many", "more than 10000 events of one push"},
                                  {"results", "more than 1000 results of one benchmark"}})
    EXPECT_EQ(client.Push({.code = code}).status(),
              absl::InternalError(absl::StrCat("malformed response from the server: ", why)));
}

// A log of 64 KiB for each of several types, and 500 problems, fit.
TEST(PushTest, LargePushesArrive) {
  const std::string log(64 << 10, 'w');
  FakeServer server(EchoInputs);
  server.AnswerPush([&](const PushStreamCall& call) {
    PushEvent compiled;
    compiled.mutable_compiled()->set_log(log);
    call.writer->Write(compiled);
    for (int i = 0; i < 500; ++i) WriteEvent("checked { passed: true }", call);
    WriteEvent(absl::StrCat("verdict { status: 'PASSED' seed: ", call.request.code().size(), "}"),
               call);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  size_t log_bytes = 0, checked = 0;
  const auto see = [&](const PushEvent& event) {
    log_bytes += event.compiled().log().size();
    checked += event.has_checked() ? 1 : 0;
    return absl::OkStatus();
  };
  const auto verdict = client.Push({.code = std::string(kPushCodeBytesMax, 'c')}, {.event = see});
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(log_bytes, log.size());
  EXPECT_EQ(checked, 500u);
  EXPECT_EQ(verdict->seed(), uint64_t{kPushCodeBytesMax});
}

}  // namespace
}  // namespace warpcall::client
