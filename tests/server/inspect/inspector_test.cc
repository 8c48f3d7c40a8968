#include "server/inspect/inspector.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/process/answer.h"

namespace warpcall::inspect {
namespace {

using process::Channel;
using process::Child;
using process::EndWatch;
using process::MakeSockets;
using process::Message;
using process::SendAnswer;
using process::ServeRequests;

// Children that are threads: the test decides how they handle a request.
class Children {
 public:
  using Answer = std::function<absl::StatusOr<std::string>(const std::string&)>;

  ~Children() { Join(); }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  absl::StatusOr<std::unique_ptr<Child>> Start(const Answer& answer) {
    std::pair<Descriptor, Descriptor> sockets;
    ASSIGN_OR_RETURN(sockets, MakeSockets(SOCK_STREAM));
    threads_.emplace_back([this, socket = std::move(sockets.second), answer]() mutable {
      const Channel channel(std::move(socket));
      const EndWatch watch(channel, [this] {
        absl::MutexLock lock(&mutex_);
        ++gone_;
        changed_.Signal();
      });
      ServeRequests(channel, [&](const Message& request) {
        return answer(request.body);
      }).IgnoreError();
    });
    return std::make_unique<Child>(Channel(std::move(sockets.first)));
  }

  void AwaitGone(int count) {
    absl::MutexLock lock(&mutex_);
    while (gone_ < count) changed_.Wait(&mutex_);
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  int gone_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

// A task and its outcome.
struct Asked {
  std::atomic<bool> cancelled{false};
  absl::Notification done;
  absl::StatusOr<std::string> answer = absl::UnknownError("not yet");
  int ahead = -1;  // tasks before it, when it was taken
  std::atomic<int> used{0};

  const absl::StatusOr<std::string>& Await() {
    done.WaitForNotification();
    return answer;
  }
};

class InspectorTest : public ::testing::Test {
 protected:
  void StartInspector(Inspector::Options options) {
    options.clock = [this] { return now_ns_.load(); };
    options.start = [this](const Inquiry& inquiry) {
      limits_.push_back({inquiry.deadline_ns, inquiry.limit_ns});
      return children_.Start(answer_);
    };
    inspector_ = std::make_unique<Inspector>(std::move(options));
  }

  absl::Status Ask(const std::string& request, Asked* asked, int64_t bytes = 0,
                   int64_t deadline_ns = kNoDeadline) {
    auto task = std::make_unique<Task>();
    task->principal = ++principals_;
    task->is_push = is_push_;
    task->waiting_max = waiting_max_;
    task->bytes = bytes;
    task->deadline_ns = deadline_ns;
    task->ns_max = ns_max_;
    task->cancelled = &asked->cancelled;
    task->queued = [asked](int ahead) { asked->ahead = ahead; };
    task->used = [asked](int64_t) { ++asked->used; };
    task->next = [request, found_ns = deadline_found_ns_](
                     const absl::Status& before) -> absl::StatusOr<Inquiry> {
      RETURN_IF_ERROR(before);
      if (request == "refused") return absl::InvalidArgumentError("no such thing");
      Inquiry inquiry;
      inquiry.request = request;
      inquiry.deadline_ns = found_ns;
      return inquiry;
    };
    task->done = [asked](absl::StatusOr<std::string> answer) {
      asked->answer = std::move(answer);
      asked->done.Notify();
    };
    return inspector_->Submit(&task);
  }

  std::atomic<int64_t> now_ns_{0};
  uint64_t principals_ = 0;
  bool is_push_ = false;
  int waiting_max_ = std::numeric_limits<int>::max();
  int64_t ns_max_ = std::numeric_limits<int64_t>::max();
  int64_t deadline_found_ns_ = kNoDeadline;  // when a task's turn has come
  // Of each child: deadline_ns and limit_ns.
  std::vector<std::pair<int64_t, int64_t>> limits_;
  Children children_;
  Children::Answer answer_ = [](const std::string& request) -> absl::StatusOr<std::string> {
    return "answer to " + request;
  };
  std::unique_ptr<Inspector> inspector_;
};

TEST_F(InspectorTest, GivesTheChildsAnswer) {
  StartInspector({});
  Asked asked;
  ASSERT_TRUE(Ask(std::string(3 << 20, 'x'), &asked).ok());
  ASSERT_TRUE(asked.Await().ok()) << asked.answer.status();
  EXPECT_EQ(*asked.answer, "answer to " + std::string(3 << 20, 'x'));
}

TEST_F(InspectorTest, GivesTheChildsErrorWithItsCode) {
  answer_ = [](const std::string&) {
    return WithRetryPushback(absl::ResourceExhaustedError("17 bytes; 16 is max"), 17);
  };
  StartInspector({});
  Asked asked;
  ASSERT_TRUE(Ask("a", &asked).ok());
  EXPECT_EQ(asked.Await().status().message(), "17 bytes; 16 is max");
  EXPECT_TRUE(absl::IsResourceExhausted(asked.Await().status()));
  EXPECT_EQ(RetryPushbackMs(asked.Await().status()), 17);
}

// The socket of a child that the test plays itself.
class PlayedChildTest : public InspectorTest {
 protected:
  PlayedChildTest() {
    auto sockets = MakeSockets(SOCK_STREAM);
    EXPECT_TRUE(sockets.ok());
    channel_ = Channel(std::move(sockets->second));
    server_end_ = std::move(sockets->first);
    Inspector::Options options;
    options.answer_bytes_max = 2000;
    options.clock = [] { return 5; };
    options.task_ns_max = 100;
    options.start = [this](const Inquiry& inquiry) {
      deadline_ns_ = inquiry.deadline_ns;
      return std::make_unique<Child>(Channel(std::move(server_end_)));
    };
    inspector_ = std::make_unique<Inspector>(std::move(options));
  }

  // Submits a task with an answer in parts, and keeps the parts.
  void AskForParts(Asked* asked, int64_t deadline_ns = kNoDeadline) {
    auto task = std::make_unique<Task>();
    task->principal = 1;
    task->deadline_ns = deadline_ns;
    task->cancelled = &asked->cancelled;
    task->next = [](const absl::Status& before) -> absl::StatusOr<Inquiry> {
      RETURN_IF_ERROR(before);
      return Inquiry();
    };
    task->part = [this](std::string part) { parts_.push_back(std::move(part)); };
    task->done = [asked](absl::StatusOr<std::string> answer) {
      asked->answer = std::move(answer);
      asked->done.Notify();
    };
    ASSERT_TRUE(inspector_->Submit(&task).ok());
  }

  Descriptor server_end_;
  Channel channel_{-1};  // the played child's end
  int64_t deadline_ns_ = 0;
  std::vector<std::string> parts_;  // the inspector's thread's until the task is done
};

TEST_F(PlayedChildTest, PartsAreHandedOverBeforeTheAnswer) {
  std::thread child([this] {
    ServeRequests(channel_, [this](const Message&) -> absl::StatusOr<std::string> {
      EXPECT_TRUE(SendAnswer(channel_, {"first", true}).ok());
      EXPECT_TRUE(SendAnswer(channel_, {"second", true}).ok());
      return "last";
    }).IgnoreError();
  });
  Asked asked;
  AskForParts(&asked);
  ASSERT_TRUE(asked.Await().ok()) << asked.answer.status();
  EXPECT_EQ(*asked.answer, "last");
  EXPECT_EQ(parts_, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(deadline_ns_, 105);  // the limit's
  child.join();
}

TEST_F(PlayedChildTest, PartsWithoutEndEndTheTask) {
  std::thread child([this] {
    ServeRequests(channel_, [this](const Message&) -> absl::StatusOr<std::string> {
      while (SendAnswer(channel_, {"", true}).ok()) {
      }
      return "";
    }).IgnoreError();
  });
  Asked asked;
  AskForParts(&asked, 50);
  EXPECT_TRUE(absl::IsResourceExhausted(asked.Await().status())) << asked.answer.status();
  EXPECT_LE(parts_.size(), 8u);
  EXPECT_EQ(deadline_ns_, 50);
  child.join();
}

TEST_F(InspectorTest, WhatIsRefusedWhenItsTurnComesStartsNoChild) {
  answer_ = [](const std::string&) -> absl::StatusOr<std::string> {
    ADD_FAILURE() << "a child was started";
    return "";
  };
  StartInspector({});
  Asked asked;
  ASSERT_TRUE(Ask("refused", &asked).ok());
  EXPECT_EQ(asked.Await().status(), absl::InvalidArgumentError("no such thing"));
}

TEST_F(InspectorTest, RunsOneAtATimeInOrder) {
  std::atomic<int> running{0};
  std::vector<std::string> order;
  answer_ = [&](const std::string& request) -> absl::StatusOr<std::string> {
    EXPECT_EQ(running.fetch_add(1), 0);
    order.push_back(request);
    std::this_thread::yield();
    running.fetch_sub(1);
    return request;
  };
  StartInspector({.waiting_max = 32});
  Asked asked[20];
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Ask(absl::StrCat(i), &asked[i]).ok());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(asked[i].Await().ok());
  ASSERT_EQ(order.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[i], absl::StrCat(i));
}

TEST_F(InspectorTest, AChildThatEndsEarlyIsAnError) {
  Inspector::Options options;
  options.start = [](const Inquiry&) -> absl::StatusOr<std::unique_ptr<Child>> {
    std::pair<Descriptor, Descriptor> sockets;
    ASSIGN_OR_RETURN(sockets, MakeSockets(SOCK_STREAM));
    return std::make_unique<Child>(Channel(std::move(sockets.first)));
  };
  inspector_ = std::make_unique<Inspector>(std::move(options));
  Asked asked;
  ASSERT_TRUE(Ask("a", &asked).ok());
  EXPECT_TRUE(absl::IsInternal(asked.Await().status()));
}

TEST_F(InspectorTest, WhatOthersMayGiveBackIsWorthAnotherTry) {
  Inspector::Options options;
  options.start = [](const Inquiry&) -> absl::StatusOr<std::unique_ptr<Child>> {
    return absl::ResourceExhaustedError("no descriptors for another process");
  };
  inspector_ = std::make_unique<Inspector>(std::move(options));
  Asked asked;
  ASSERT_TRUE(Ask("a", &asked).ok());
  EXPECT_GT(RetryPushbackMs(asked.Await().status()).value_or(-1), 0);
  // An error with its own retry hint keeps it.
  answer_ = [](const std::string&) -> absl::StatusOr<std::string> {
    return WithRetryPushback(absl::ResourceExhaustedError("too large"), kNeverRetry);
  };
  StartInspector({});
  Asked never;
  ASSERT_TRUE(Ask("b", &never).ok());
  EXPECT_EQ(RetryPushbackMs(never.Await().status()), kNeverRetry);
}

// Fills the inspector with a task that runs until `release` and lets the test look meanwhile.
class BusyInspectorTest : public InspectorTest {
 protected:
  void StartBusy(Inspector::Options options) {
    answer_ = [this](const std::string& request) -> absl::StatusOr<std::string> {
      if (request != "long") {
        order_.push_back(request);
        return request;
      }
      started_.Notify();
      release_.WaitForNotification();
      return request;
    };
    StartInspector(std::move(options));
    ASSERT_TRUE(Ask("long", &long_).ok());
    started_.WaitForNotification();
  }
  void TearDown() override {
    if (!release_.HasBeenNotified()) release_.Notify();
    inspector_.reset();
    children_.Join();  // they use this class's members
  }

  // Submits the request for the principal whose number it begins with.
  absl::Status AskFor(const std::string& request, Asked* asked) {
    principals_ = static_cast<uint64_t>(request[0] - '0') - 1;
    return Ask(request, asked);
  }

  absl::Notification started_;
  absl::Notification release_;
  std::vector<std::string> order_;  // requests beside "long", which run one at a time
  Asked long_;
};

TEST_F(BusyInspectorTest, PrincipalsTakeTurns) {
  StartBusy({.waiting_max = 16});  // principal 1
  const std::pair<std::string, int> requests[] = {{"1a", 1}, {"1b", 2}, {"2a", 1},
                                                  {"2b", 3}, {"2c", 5}, {"3a", 2}};
  Asked asked[std::size(requests)];
  for (size_t i = 0; i < std::size(requests); ++i) {
    ASSERT_TRUE(AskFor(requests[i].first, &asked[i]).ok());
    EXPECT_EQ(asked[i].ahead, requests[i].second) << requests[i].first;
  }
  release_.Notify();
  for (Asked& each : asked) ASSERT_TRUE(each.Await().ok());
  EXPECT_EQ(order_, (std::vector<std::string>{"2a", "3a", "1a", "2b", "1b", "2c"}));
}

// Principals with one request at a time do not keep another's from running for ever.
TEST_F(BusyInspectorTest, AServedPrincipalThatHasNothingWaitingIsRemembered) {
  StartBusy({.waiting_max = 16});  // principal 1
  Asked second, waiting[4];
  ASSERT_TRUE(AskFor("2a", &second).ok());
  release_.Notify();
  ASSERT_TRUE(second.Await().ok());
  absl::Notification go;
  answer_ = [&](const std::string& request) -> absl::StatusOr<std::string> {
    go.WaitForNotification();
    order_.push_back(request);
    return request;
  };
  const std::string requests[] = {"3a", "3b", "2b", "1b"};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(AskFor(requests[i], &waiting[i]).ok());
  go.Notify();
  for (Asked& each : waiting) ASSERT_TRUE(each.Await().ok());
  EXPECT_EQ(order_, (std::vector<std::string>{"2a", "3a", "1b", "2b", "3b"}));
}

TEST_F(BusyInspectorTest, TheServersOwnKeepsItsPlace) {
  principals_ = UINT64_MAX;  // the next is 0
  StartBusy({});
  const std::vector<std::string> requests = {"0a", "2a", "2b", "0b"};
  Asked asked[4];
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(AskFor(requests[i], &asked[i]).ok());
  release_.Notify();
  for (Asked& each : asked) ASSERT_TRUE(each.Await().ok());
  EXPECT_EQ(order_, requests);
}

TEST_F(BusyInspectorTest, RefuseEndsTheServersOwnAndNoOther) {
  principals_ = UINT64_MAX;  // the next is 0
  StartBusy({});
  Asked waiting;
  ASSERT_TRUE(Ask("next", &waiting).ok());
  inspector_->BeginDrain();
  EXPECT_TRUE(long_.done.WaitForNotificationWithTimeout(absl::Seconds(30)));
  release_.Notify();
  EXPECT_TRUE(absl::IsUnavailable(long_.Await().status())) << long_.answer.status();
  EXPECT_TRUE(waiting.Await().ok());
}

TEST_F(BusyInspectorTest, RefusesWhatExceedsTheQueueAndSaysWhenToComeBack) {
  StartBusy({.waiting_max = 2});
  Asked waiting[2];
  for (Asked& asked : waiting) ASSERT_TRUE(Ask("next", &asked).ok());
  Asked refused;
  const absl::Status status = Ask("one more", &refused);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "2 Benchmark, Profile and Describe calls wait"))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "the limits are 2 (inspect_queue)")) << status;
  EXPECT_TRUE(RetryPushbackMs(status).has_value());
  release_.Notify();
  for (Asked& asked : waiting) EXPECT_TRUE(asked.Await().ok());
  EXPECT_TRUE(long_.Await().ok());
}

// They have places of their own, of which a connection without a name gets two.
TEST_F(BusyInspectorTest, PushesWaitInAQueueOfTheirOwn) {
  StartBusy({.waiting_max = 1});
  Asked other, pushes[3];
  ASSERT_TRUE(Ask("next", &other).ok());
  is_push_ = true;
  waiting_max_ = 2;
  absl::Status status;
  for (Asked& asked : pushes) {
    --principals_;
    status = Ask("next", &asked);
    EXPECT_EQ(status.ok(), &asked != &pushes[2]) << status;
  }
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "2 pushes wait, which run one at a time, 2 of them of this "
                                "principal; the limits are 64 and 2"))
      << status;
  std::vector<Asked> more(kPushesWaitingMax - 2);
  for (Asked& asked : more) EXPECT_TRUE(Ask("next", &asked).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Ask("next", &pushes[2])));
  release_.Notify();
  for (Asked& asked : more) EXPECT_TRUE(asked.Await().ok());
  for (Asked* const asked : {&other, &pushes[0], &pushes[1]}) EXPECT_TRUE(asked->Await().ok());
}

TEST_F(BusyInspectorTest, TellsWhatIsTakenHowManyGoBefore) {
  StartBusy({});
  EXPECT_EQ(long_.ahead, 0);
  Asked waiting[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Ask("next", &waiting[i]).ok());
    EXPECT_EQ(waiting[i].ahead, i + 1);
  }
  release_.Notify();
  for (Asked& asked : waiting) EXPECT_TRUE(asked.Await().ok());
}

TEST_F(BusyInspectorTest, TellsWhatIsUsedWhileItRunsAndAtItsEnd) {
  StartBusy({});
  while (long_.used.load() == 0) std::this_thread::yield();
  inspector_->Wake();
  const int before = long_.used.load();
  release_.Notify();
  EXPECT_TRUE(long_.Await().ok());
  EXPECT_GT(long_.used.load(), before);
}

TEST_F(BusyInspectorTest, APrincipalGetsHalfThePlaces) {
  StartBusy({.waiting_max = 4});
  Asked waiting[3];
  for (Asked& asked : waiting) {
    --principals_;
    const absl::Status status = Ask("next", &asked);
    EXPECT_EQ(status.ok(), &asked != &waiting[2]) << status;
    if (status.ok()) continue;
    EXPECT_TRUE(absl::StrContains(status.message(), "2 of them of this")) << status;
  }
  EXPECT_TRUE(Ask("another's", &waiting[2]).ok());
  release_.Notify();
  for (Asked& asked : waiting) EXPECT_TRUE(asked.Await().ok());
}

TEST_F(BusyInspectorTest, TheServersOwnAreAlwaysTaken) {
  StartBusy({.waiting_max = 1});
  Asked waiting, own;
  ASSERT_TRUE(Ask("next", &waiting).ok());
  EXPECT_TRUE(AskFor("0 own", &own).ok());
  release_.Notify();
  EXPECT_TRUE(own.Await().ok());
  EXPECT_TRUE(waiting.Await().ok());
}

TEST_F(BusyInspectorTest, BoundsTheBytesThatWait) {
  StartBusy({.waiting_bytes_max = 100});
  Asked first, second, third;
  ASSERT_TRUE(Ask("a", &first, 90).ok());
  const absl::Status status = Ask("b", &second, 11);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "101")) << status;
  ASSERT_TRUE(Ask("c", &third, 10).ok());
  release_.Notify();
  EXPECT_TRUE(third.Await().ok());
}

TEST_F(BusyInspectorTest, EndsTheChildWhenTheClientGoesAway) {
  StartBusy({});
  long_.cancelled.store(true);
  inspector_->Wake();
  EXPECT_TRUE(absl::IsCancelled(long_.Await().status()));
  children_.AwaitGone(1);
}

TEST_F(BusyInspectorTest, EndsTheChildAtItsDeadline) {
  answer_ = [this](const std::string&) -> absl::StatusOr<std::string> {
    now_ns_.store(1001);
    release_.WaitForNotification();
    return "late";
  };
  StartInspector({});
  Asked asked;
  ASSERT_TRUE(Ask("a", &asked, 0, 1000).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(asked.Await().status()));
  children_.AwaitGone(1);
}

TEST_F(BusyInspectorTest, EndsTheChildAtTheLimitAndNamesIt) {
  StartBusy({.task_ns_max = 3'000'000'000});
  now_ns_.store(5'000'000'000);
  inspector_->Wake();
  EXPECT_TRUE(absl::IsResourceExhausted(long_.Await().status()));
  EXPECT_TRUE(absl::StrContains(long_.answer.status().message(), "limit of 3 s (inspect_seconds)"));
}

// A push that ends by the limit has a verdict, on a busy machine too.
TEST_F(BusyInspectorTest, TheAnswerOfAChildThatEndsItselfMayComeLate) {
  answer_ = [this](const std::string&) -> absl::StatusOr<std::string> {
    now_ns_.store(4'999'999'999);
    inspector_->Wake();
    release_.WaitForNotification();
    return "late";
  };
  StartInspector({.task_ns_max = 3'000'000'000});
  Asked asked;
  ASSERT_TRUE(Ask("a", &asked).ok());
  EXPECT_FALSE(asked.done.WaitForNotificationWithTimeout(absl::Milliseconds(300)));
  release_.Notify();
  EXPECT_TRUE(asked.Await().ok()) << asked.answer.status();
}

TEST_F(BusyInspectorTest, NoOtherChildBeginsAfterTheLimit) {
  answer_ = [this](const std::string&) -> absl::StatusOr<std::string> {
    now_ns_.fetch_add(4'000'000'000);
    return absl::UnimplementedError("another may");
  };
  StartInspector({.task_ns_max = 3'000'000'000});
  Asked asked;
  auto task = std::make_unique<Task>();
  task->principal = 1;
  task->cancelled = &asked.cancelled;
  task->next = [](const absl::Status& before) -> absl::StatusOr<Inquiry> {
    if (!absl::IsUnimplemented(before)) RETURN_IF_ERROR(before);
    return Inquiry();
  };
  task->done = [&](absl::StatusOr<std::string> answer) {
    asked.answer = std::move(answer);
    asked.done.Notify();
  };
  ASSERT_TRUE(inspector_->Submit(&task).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(asked.Await().status())) << asked.answer.status();
  EXPECT_EQ(limits_.size(), 1u);
}

// However long a task waits behind another's, it has all of its own time.
TEST_F(BusyInspectorTest, TheTimeOfATaskCountsFromWhenItLeavesTheQueue) {
  StartBusy({.task_ns_max = 3'000});
  ns_max_ = 1'000;
  Asked waiting, callers, found;
  ASSERT_TRUE(Ask("next", &waiting).ok());
  ASSERT_TRUE(Ask("callers", &callers, 0, 2'900).ok());
  now_ns_.store(2'000);
  release_.Notify();
  EXPECT_TRUE(waiting.Await().ok()) << waiting.answer.status();
  EXPECT_TRUE(callers.Await().ok()) << callers.answer.status();
  deadline_found_ns_ = 2'500;
  ASSERT_TRUE(Ask("found", &found).ok());
  EXPECT_TRUE(found.Await().ok()) << found.answer.status();
  using Limits = std::pair<int64_t, int64_t>;
  EXPECT_EQ(limits_, (std::vector<Limits>{{3'000, 3'000}, {3'000, 1'000}, {2'900, 0}, {2'500, 0}}));
}

TEST_F(BusyInspectorTest, ATaskEndsAtItsOwnLimitAndAtADeadlineThatIsFoundLate) {
  ns_max_ = 1'000'000'000;
  StartBusy({});
  Asked late;
  now_ns_.store(3'000'000'000);
  inspector_->Wake();
  EXPECT_TRUE(absl::IsResourceExhausted(long_.Await().status()));
  EXPECT_EQ(long_.answer.status().message(),
            "the call took longer than the limit of 1 s: ask for less");
  deadline_found_ns_ = 900'000'000;
  ASSERT_TRUE(Ask("late", &late).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.Await().status())) << late.answer.status();
}

TEST_F(BusyInspectorTest, DropsWhatWaitsWhenItsClientGoesAway) {
  StartBusy({});
  Asked waiting;
  ASSERT_TRUE(Ask("next", &waiting).ok());
  waiting.cancelled.store(true);
  inspector_->Wake();
  EXPECT_TRUE(absl::IsCancelled(waiting.Await().status()));
  EXPECT_FALSE(long_.done.HasBeenNotified());
}

TEST_F(BusyInspectorTest, FinishesWhatItTookAndTakesNoMoreAfterRefuse) {
  StartBusy({});
  Asked waiting, refused;
  ASSERT_TRUE(Ask("next", &waiting).ok());
  inspector_->BeginDrain();
  EXPECT_TRUE(absl::IsUnavailable(Ask("late", &refused)));
  release_.Notify();
  EXPECT_TRUE(long_.Await().ok());
  EXPECT_TRUE(waiting.Await().ok());
}

TEST_F(BusyInspectorTest, LeavesNothingUnansweredWhenItGoes) {
  StartBusy({});
  Asked waiting;
  ASSERT_TRUE(Ask("next", &waiting).ok());
  inspector_.reset();
  EXPECT_TRUE(absl::IsUnavailable(long_.Await().status()));
  EXPECT_TRUE(absl::IsUnavailable(waiting.Await().status()));
}

}  // namespace
}  // namespace warpcall::inspect
