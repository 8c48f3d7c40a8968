#include "server/log/log_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/log/log.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;

// A pipe whose reader reads when the test says so. Its destructor releases a writer that waits for
// the pipe.
class Pipe {
 public:
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader_ = ends[0];
    writer_ = ends[1];
  }
  ~Pipe() {
    CloseReader();
    CloseWriter();
  }
  int writer() const { return writer_; }
  void CloseWriter() { close(std::exchange(writer_, -1)); }
  void CloseReader() { close(std::exchange(reader_, -1)); }

  // The next line, with its end.
  std::string Line() {
    std::string line;
    for (char c; read(reader_, &c, 1) == 1;) {
      line.push_back(c);
      if (c == '\n') break;
    }
    return line;
  }

 private:
  int reader_ = -1;
  int writer_ = -1;
};

std::string Notice(int64_t dropped) { return absl::StrCat("dropped ", dropped, "\n"); }

TEST(LogWriterTest, LinesOfEachThreadComeOutInTheirOrder) {
  constexpr int kThreads = 4;
  constexpr int kLines = 500;
  LogWriter writer({.notice = Notice});
  Pipe pipe;
  ASSERT_TRUE(writer.Start().ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int line = 0; line < kLines; ++line)
        writer.Write(pipe.writer(), absl::StrCat(i, " ", line, "\n"));
    });
  std::map<int, int> next;
  for (int i = 0; i < kThreads * kLines; ++i) {
    const std::string line = pipe.Line();
    int thread = -1, number = -1;
    std::istringstream(line) >> thread >> number;
    EXPECT_EQ(number, next[thread]++) << line;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(writer.Flush(absl::InfiniteDuration()));
  EXPECT_EQ(writer.dropped(), 0);
}

// The writer holds unwritten lines up to its limit; the rest is one gap, reported in its place.
TEST(LogWriterTest, WhoDoesNotReadHoldsUpNobody) {
  constexpr int kLines = 1000;
  LogWriter writer({.bytes_max = 64 << 10, .notice = Notice});
  Pipe pipe;
  ASSERT_TRUE(writer.Start().ok());
  const std::string filling(1000, 'x');
  for (int i = 0; i < kLines; ++i) writer.Write(pipe.writer(), absl::StrCat(i, " ", filling, "\n"));
  EXPECT_LE(writer.pending_bytes(), size_t{64} << 10);
  EXPECT_FALSE(writer.Flush(absl::Milliseconds(10)));
  const int64_t dropped = writer.dropped();
  ASSERT_GT(dropped, 0);
  ASSERT_LT(dropped, kLines);
  for (int i = 0; i < kLines - dropped; ++i)
    EXPECT_EQ(pipe.Line(), absl::StrCat(i, " ", filling, "\n"));
  EXPECT_EQ(pipe.Line(), Notice(dropped));
  EXPECT_TRUE(writer.Flush(absl::InfiniteDuration()));
  writer.Write(pipe.writer(), "next\n");
  EXPECT_EQ(pipe.Line(), "next\n");
  EXPECT_EQ(writer.dropped(), dropped);
}

TEST(LogWriterTest, WhatCannotBeWrittenIsCountedAndToldOfLater) {
  signal(SIGPIPE, SIG_IGN);
  LogWriter writer({.notice = Notice});
  Pipe gone, pipe;
  gone.CloseReader();
  ASSERT_TRUE(writer.Start().ok());
  for (int i = 0; i < 3; ++i) {
    writer.Write(gone.writer(), "lost\n");
    EXPECT_TRUE(writer.Flush(absl::InfiniteDuration()));
  }
  EXPECT_EQ(writer.dropped(), 3);
  writer.Write(pipe.writer(), "next\n");
  EXPECT_EQ(pipe.Line(), Notice(3));
  EXPECT_EQ(pipe.Line(), "next\n");
}

TEST(LogWriterTest, EndsWithAllThatItTook) {
  Pipe pipe;
  {
    LogWriter writer({.notice = Notice});
    ASSERT_TRUE(writer.Start().ok());
    for (int i = 0; i < 100; ++i) writer.Write(pipe.writer(), "line\n");
  }
  pipe.CloseWriter();
  int lines = 0;
  while (pipe.Line() == "line\n") ++lines;
  EXPECT_EQ(lines, 100);
}

// Another process with the same file may make it non-blocking.
TEST(LogWriterTest, WaitsForANonBlockingFile) {
  LogWriter writer({.notice = Notice});
  Pipe pipe;
  fcntl(pipe.writer(), F_SETFL, O_NONBLOCK);
  ASSERT_TRUE(writer.Start().ok());
  const std::string filling(1000, 'x');
  for (int i = 0; i < 200; ++i) writer.Write(pipe.writer(), absl::StrCat(i, " ", filling, "\n"));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(pipe.Line(), absl::StrCat(i, " ", filling, "\n"));
}

TEST(LogWriterDeathTest, ACrashComesAfterTheLastWords) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto crash = [] {
    if (!StartLogWriter().ok()) _exit(1);
    for (int i = 0; i < 1000; ++i) Log(LogLevel::kInfo, "before");
    Log(LogLevel::kError, "last words");
    abort();
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGABRT), "msg=\"last words\"");
}

TEST(LogWriterTest, ItsNoticeIsALineOfTheLog) {
  EXPECT_THAT(
      LinesDroppedNotice(17),
      HasSubstr(" level=warning msg=\"lines of the log were dropped here: they could not be "
                "written\" lines=17\n"));
}

}  // namespace
}  // namespace warpcall
