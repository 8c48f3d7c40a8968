#include "server/log/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/log/log.h"
#include "server/process/child.h"

namespace warpcall {
namespace {

constexpr int kCrashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};

// The process's writer; never destroyed, since its thread may be held up in a write.
std::atomic<LogWriter*> process_writer{nullptr};

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote >= 0) {
      text.remove_prefix(static_cast<size_t>(wrote));
    } else if (errno == EAGAIN) {
      // Somebody else who has this file made it non-blocking.
      pollfd writable = {fd, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Lets the writer's thread write the last lines, then lets the process die of `signal`, which has
// its default action again. Async-signal-safe.
void AwaitWriterAndDie(int signal) {
  const LogWriter* const writer = process_writer.load();
  constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int looks = 0; looks < 1000 && writer->pending_bytes() > 0; ++looks)
    nanosleep(&kLook, nullptr);
  raise(signal);
}

// Installs AwaitWriterAndDie for crashes that nobody else handles, as sanitizers do.
void FlushBeforeCrashes() {
  for (const int signal : kCrashes) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = AwaitWriterAndDie;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

LogWriter::~LogWriter() {
  if (!thread_.joinable()) return;
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
    arrived_.Signal();
  }
  thread_.join();
}

absl::Status LogWriter::Start() {
  // The thread blocks all signals of the process.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::Status status;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("cannot start a thread for the log: ", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void LogWriter::Write(int fd, std::string line) {
  const absl::MutexLock lock(&mutex_);
  if (full_ || pending_bytes_.load() + line.size() > options_.bytes_max) {
    full_ = true;
    full_fd_ = fd;
    ++unsaid_;
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (unsaid_ > 0) PushNotice(fd);
  Push({fd, std::move(line)});
}

void LogWriter::Push(Line line) {
  pending_bytes_.fetch_add(line.text.size(), std::memory_order_relaxed);
  lines_.push_back(std::move(line));
  arrived_.Signal();
}

void LogWriter::PushNotice(int fd) {
  const int64_t said = std::exchange(unsaid_, 0);
  if (options_.notice != nullptr) Push({fd, options_.notice(said), said});
}

bool LogWriter::Flush(absl::Duration timeout) {
  const SteadyTime end = SteadyAfter(timeout);
  const absl::MutexLock lock(&mutex_);
  while (pending_bytes_.load() > 0 || full_)
    if (written_.WaitUntil(&mutex_, end)) return pending_bytes_.load() == 0 && !full_;
  return true;
}

void LogWriter::Run() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    if (lines_.empty() && std::exchange(full_, false)) PushNotice(full_fd_);
    if (lines_.empty()) {
      written_.SignalAll();
      if (ending_) return;
      arrived_.Wait(&mutex_);
      continue;
    }
    const Line line = std::move(lines_.front());
    lines_.pop_front();
    mutex_.Unlock();
    const bool is_written = WriteAll(line.fd, line.text);
    mutex_.Lock();
    pending_bytes_.fetch_sub(line.text.size(), std::memory_order_relaxed);
    if (is_written) continue;
    // A notice now would fail as well; the next line that is taken brings one.
    const int64_t lost = line.said > 0 ? line.said : 1;
    unsaid_ += lost;
    if (line.said == 0) dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

absl::Status StartLogWriter() {
  auto writer = std::make_unique<LogWriter>(LogWriter::Options{.notice = LinesDroppedNotice});
  if (absl::Status started = writer->Start(); !started.ok()) return started;
  process_writer.store(writer.release());
  FlushBeforeCrashes();
  return absl::OkStatus();
}

void WriteLine(int fd, std::string line) {
  if (LogWriter* const writer = process_writer.load(); writer != nullptr)
    writer->Write(fd, std::move(line));
  else
    WriteAll(fd, line);  // nothing helps when stderr is gone
}

void FlushLog(absl::Duration timeout) {
  if (LogWriter* const writer = process_writer.load(); writer != nullptr) writer->Flush(timeout);
}

int64_t LogLinesDropped() {
  const LogWriter* const writer = process_writer.load();
  return writer == nullptr ? 0 : writer->dropped();
}

void EndProcess(int status) {
  process::KillChildren();
  FlushLog();
  _exit(status);
}

}  // namespace warpcall
