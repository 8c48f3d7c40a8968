#include "server/program/reload.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>

#include "absl/synchronization/notification.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

int64_t FailuresOf(const Reloader& reloader, const std::string& flag) {
  for (const LabelledCount& count : reloader.failures())
    if (count.label == flag) return count.count;
  return -1;
}

class ReloadTest : public ::testing::Test {
 protected:
  // Adds a file in a hanging file system: reading it waits for the test.
  void AddHanging() {
    reloader_.Add({"hanging", "/mnt/hanging"}, [this]() -> absl::StatusOr<std::string> {
      hangs_.Notify();
      answer_.WaitForNotification();
      return "read";
    });
  }
  // Adds a file whose readings AwaitRead counts.
  void AddQuick() {
    reloader_.Add({"quick", "/etc/quick"}, [this]() -> absl::StatusOr<std::string> {
      const absl::MutexLock lock(&mutex_);
      ++read_;
      reads_.SignalAll();
      return "read";
    });
  }
  void AwaitRead(int times) {
    const absl::MutexLock lock(&mutex_);
    // Avoids Mutex::Await: ThreadSanitizer does not see what orders its conditions.
    while (read_ < times) reads_.Wait(&mutex_);
  }

  absl::Mutex mutex_;
  absl::CondVar reads_;
  int read_ = 0;
  absl::Notification hangs_, answer_;
  Reloader reloader_;  // last: uses the others
};

TEST_F(ReloadTest, AFileThatHangsHoldsUpNeitherOthersNorTheEnd) {
  AddHanging();
  AddQuick();
  reloader_.Start();
  reloader_.ReadAgain();
  hangs_.WaitForNotification();
  AwaitRead(1);
  reloader_.ReadAgain();
  AwaitRead(2);
  EXPECT_FALSE(reloader_.End(absl::Milliseconds(10)));
  answer_.Notify();
  EXPECT_TRUE(reloader_.End(absl::InfiniteDuration()));
}

TEST_F(ReloadTest, AFailureNamesWhichOfSeveralFilesItIsAbout) {
  reloader_.Add({.flag = "tls_cert", .file = "/a/cert", .watched = {"/a/cert", "/a/key", ""}},
                []() -> absl::StatusOr<std::string> {
                  return absl::InvalidArgumentError("--tls_key: /a/key: No such file");
                });
  ::testing::internal::CaptureStderr();
  reloader_.Start();
  absl::Notification done;
  reloader_.ReadAgain([&] { done.Notify(); });
  done.WaitForNotification();
  EXPECT_TRUE(reloader_.End(absl::InfiniteDuration()));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("stays in force\" file=/a/key error="), std::string::npos) << said;
}

TEST_F(ReloadTest, SaysWhenAllAreRead) {
  AddHanging();
  AddQuick();
  reloader_.Start();
  absl::Notification done;
  reloader_.ReadAgain([&] { done.Notify(); });
  hangs_.WaitForNotification();
  AwaitRead(1);
  EXPECT_FALSE(done.HasBeenNotified());
  answer_.Notify();
  done.WaitForNotification();
}

TEST_F(ReloadTest, WithoutFilesAllAreRead) {
  bool done = false;
  reloader_.Start();
  reloader_.ReadAgain([&] { done = true; });
  EXPECT_TRUE(done);
}

TEST_F(ReloadTest, AFileThatHangsIsReportedOnce) {
  AddHanging();
  AddQuick();
  reloader_.Start();
  reloader_.ReadAgain();
  hangs_.WaitForNotification();
  AwaitRead(1);
  reloader_.ReportHanging();
  EXPECT_EQ(FailuresOf(reloader_, "hanging"), 0);  // not so long yet
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) reloader_.ReportHanging(absl::Nanoseconds(1));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(FailuresOf(reloader_, "hanging"), 1);
  EXPECT_NE(said.find("a file system does not answer: what the file said before stays\" "
                      "file=/mnt/hanging"),
            std::string::npos)
      << said;
  answer_.Notify();
}

TEST_F(ReloadTest, WhatFailsIsCounted) {
  absl::Notification second;
  std::atomic<int> times{0};
  reloader_.Add({"failing", "/etc/failing"}, [&]() -> absl::StatusOr<std::string> {
    if (times.fetch_add(1) == 1) second.Notify();
    return absl::UnavailableError("no");
  });
  reloader_.Start();
  reloader_.ReadAgain();
  while (FailuresOf(reloader_, "failing") < 1) std::this_thread::yield();
  reloader_.ReadAgain();
  second.WaitForNotification();
  EXPECT_TRUE(reloader_.End(absl::InfiniteDuration()));
  EXPECT_EQ(FailuresOf(reloader_, "failing"), 2);
}

}  // namespace
}  // namespace warpcall
