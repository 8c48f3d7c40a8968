// Writes the log from a bounded buffer on a thread of its own: a reader who stops reading holds up
// nobody who logs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/common/steady_wait.h"
#include "server/log/log.h"

namespace warpcall {

// Thread-safe. Lines come out in the order of Write, each by a write(2) of its own, so that lines
// of several processes do not mix.
//
// A line that does not fit into the buffer is dropped, and so are all that follow until the buffer
// is written: the lines that come out have one gap, which `notice` tells, in its place.
class LogWriter {
 public:
  struct Options {
    size_t bytes_max = size_t{1} << 20;
    // Makes the line that says how many lines were dropped. Called under the writer's lock.
    std::function<std::string(int64_t dropped)> notice = nullptr;
  };

  explicit LogWriter(Options options) : options_(std::move(options)) {}
  // Writes what is buffered. REQUIRES: no write blocks for ever.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // RESOURCE_EXHAUSTED: the system has no thread for it.
  absl::Status Start();

  // Buffers `line` for the descriptor `fd`, or drops and counts it. Never waits for a reader.
  void Write(int fd, std::string line);
  // Waits until everything is written. False where that takes longer than `timeout`.
  bool Flush(absl::Duration timeout);

  // Lines that did not fit, and those that could not be written (a full disk, no reader any more).
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  // Bytes not written yet. May be called from a signal handler.
  size_t pending_bytes() const { return pending_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Line {
    int fd;
    std::string text;
    int64_t said = 0;  // in a notice: the number of dropped lines that it reports
  };

  void Run();
  void Push(Line line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushNotice(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  SteadyCondVar arrived_;
  SteadyCondVar written_;
  std::deque<Line> lines_ ABSL_GUARDED_BY(mutex_);
  bool full_ ABSL_GUARDED_BY(mutex_) = false;   // a line did not fit, and no notice said so yet
  int full_fd_ ABSL_GUARDED_BY(mutex_) = -1;    // where it would have gone
  int64_t unsaid_ ABSL_GUARDED_BY(mutex_) = 0;  // dropped lines that no notice told of
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> pending_bytes_{0};  // written under the mutex
  std::atomic<int64_t> dropped_{0};
  std::thread thread_;  // last: runs on all of the above
};

// Longest value or message in a line; a longer one is cut and followed by its length.
inline constexpr size_t kLogValueBytesMax = 1024;

// The line that says that `dropped` lines are missing before it, in the log's format.
std::string LinesDroppedNotice(int64_t dropped);

// How long the end of a process waits for its log's reader.
inline constexpr absl::Duration kLogFlushTime = absl::Seconds(1);

// Starts the process's writer: before, WriteLine writes by itself. A crash (SIGABRT, SIGSEGV, ...)
// waits for what is buffered, up to kLogFlushTime.
absl::Status StartLogWriter();

// Writes a line of its own for whoever started the program, to stdout or stderr: "warpcalld:
// MESSAGE", or an object as the log's lines where those are JSON.
void Say(int fd, LogLevel level, absl::string_view message, absl::Span<const LogField> fields = {});

// Writes `line`, in order with all others of this process.
void WriteLine(int fd, std::string line);
void FlushLog(absl::Duration timeout = kLogFlushTime);
int64_t LogLinesDropped();

// Ends the process at once, and those that it started, but for what the log has buffered: nothing
// is destroyed.
[[noreturn]] void EndProcess(int status);

}  // namespace warpcall
