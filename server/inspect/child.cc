#include "server/inspect/child.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/compiled/program.h"
#include "proto/common/status_macros.h"
#include "server/engine/retry_pushback.h"
#include "server/spawn.h"

namespace warpcall::inspect {
namespace {

// No message of gRPC's is longer.
constexpr size_t kRequestBytesMax = std::numeric_limits<int32_t>::max();
constexpr size_t kErrorBytesMax = 64 << 10;
// Room is made for so much at first, and then for as much again as has come.
constexpr size_t kReadBytesMin = 64 << 10;
// Between two bytes of one message: they lie in memory when the first is sent.
constexpr timeval kPauseMax = {.tv_sec = 30, .tv_usec = 0};

// For a child to end by itself, which takes what the system needs to take its memory back.
constexpr int kEndMs = 1000;

// Kills a process that does not end by itself: one that is stopped (SIGSTOP) sees no socket closed.
void EndProcessSoon(int process) {
  pollfd end = {process, POLLIN, 0};
  if (poll(&end, 1, kEndMs) == 0) KillProcess(process);
  CloseProcess(process);
}

absl::Status EndedEarly() {
  return absl::InternalError("the process that looked into it ended early");
}

absl::Status WriteAll(int socket, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = send(socket, at, bytes, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return EndedEarly();
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status ReadAll(int socket, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return EndedEarly();
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadString(int socket, uint64_t bytes, size_t bytes_max) {
  if (bytes > bytes_max)
    return absl::InternalError(
        absl::StrCat("the other process has ", bytes, " bytes to say; the limit is ", bytes_max));
  std::string text;
  while (text.size() < bytes) {
    const size_t begin = text.size();
    text.resize(begin + std::min<size_t>(bytes - begin, std::max(begin, kReadBytesMin)));
    RETURN_IF_ERROR(ReadAll(socket, text.data() + begin, text.size() - begin));
  }
  return text;
}

absl::Status WriteAnswer(int socket, AnswerHeader header, absl::string_view message,
                         absl::string_view payload) {
  header.message_bytes = message.size();
  header.payload_bytes = payload.size();
  RETURN_IF_ERROR(WriteAll(socket, &header, sizeof(header)));
  RETURN_IF_ERROR(WriteAll(socket, message.data(), message.size()));
  return WriteAll(socket, payload.data(), payload.size());
}

// Calls `gone` when the socket's other end is closed, until `stop` is readable.
void WatchSocket(int socket, int stop, const std::function<void()>& gone) {
  pollfd watched[] = {{socket, POLLRDHUP, 0}, {stop, POLLIN, 0}};
  while (poll(watched, 2, -1) < 0 && errno == EINTR) {
  }
  if (watched[1].revents == 0) gone();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& arguments) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("no sockets: ", strerror(errno)));
  const int theirs = MoveBeyondInherited(pair[1]);
  const absl::StatusOr<pid_t> spawned =
      theirs < 0 ? absl::ResourceExhaustedError("no descriptors for another process")
                 : SpawnSelf(arguments, {theirs});
  if (theirs >= 0) close(theirs);  // so that the child's end is seen
  auto child = std::make_unique<Child>(pair[0], spawned.value_or(0));
  RETURN_IF_ERROR(spawned.status());
  return child;
}

Child::Child(int socket, pid_t pid) : socket_(socket), pid_(pid) {
  // Without these limits a child that stops in the middle of an answer would be waited for.
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPauseMax, sizeof(kPauseMax));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kPauseMax, sizeof(kPauseMax));
}

Child::~Child() {
  const int process = pid_ > 0 ? OpenProcess(pid_, socket_) : -1;
  close(socket_);
  if (process < 0) return;
  // Whoever asked does not wait for it.
  try {
    std::thread(EndProcessSoon, process).detach();
  } catch (const std::system_error&) {
    EndProcessSoon(process);
  }
}

absl::Status Child::Send(absl::string_view request) {
  const uint64_t bytes = request.size();
  RETURN_IF_ERROR(WriteAll(socket_, &bytes, sizeof(bytes)));
  return WriteAll(socket_, request.data(), request.size());
}

absl::StatusOr<Answer> Child::Receive(size_t bytes_max) {
  AnswerHeader header;
  RETURN_IF_ERROR(ReadAll(socket_, &header, sizeof(header)));
  if (header.code < 0 || header.code > static_cast<int32_t>(absl::StatusCode::kUnauthenticated))
    return absl::InternalError(
        absl::StrCat("the process that looked into it answered with code ", header.code));
  std::string message;
  ASSIGN_OR_RETURN(message, ReadString(socket_, header.message_bytes, kErrorBytesMax));
  if (header.payload_bytes > bytes_max)
    return WithRetryPushback(absl::ResourceExhaustedError(absl::StrCat(
                                 "the answer has ", header.payload_bytes, " bytes; the limit is ",
                                 bytes_max, " (max_message_mib)")),
                             kNeverRetry);
  std::string payload;
  ASSIGN_OR_RETURN(payload, ReadString(socket_, header.payload_bytes, bytes_max));
  if (header.code == 0) return Answer{std::move(payload), header.more != 0};
  absl::Status status(static_cast<absl::StatusCode>(header.code), message);
  if (header.is_compile_error != 0) status = compiled::AsCompileError(std::move(status));
  if (header.has_pushback == 0) return status;
  return WithRetryPushback(std::move(status), std::max(header.pushback_ms, kNeverRetry));
}

int64_t Child::CpuNs() const {
  clockid_t clock;
  timespec time = {};
  if (pid_ <= 0 || clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0)
    return 0;
  // A process closes its sockets before its id is free: until then what was read was its own.
  pollfd end = {socket_, 0, 0};
  if (poll(&end, 1, 0) < 0 || (end.revents & POLLHUP) != 0) return 0;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int InheritedSocket() { return kInheritedFirst; }

absl::Status ServeParent(int socket,
                         const std::function<absl::StatusOr<std::string>(std::string)>& answer,
                         const std::function<void()>& gone) {
  uint64_t bytes;
  RETURN_IF_ERROR(ReadAll(socket, &bytes, sizeof(bytes)));
  std::string request;
  ASSIGN_OR_RETURN(request, ReadString(socket, bytes, kRequestBytesMax));
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0) return absl::ResourceExhaustedError("no descriptors");
  std::thread watcher(WatchSocket, socket, stop, std::cref(gone));
  const absl::Cleanup stop_watching = [&] {
    eventfd_write(stop, 1);
    watcher.join();
    close(stop);
  };
  const absl::StatusOr<std::string> result = answer(std::move(request));
  const std::string message(result.status().message().substr(0, kErrorBytesMax));
  const std::string empty;
  const std::string& payload = result.ok() ? *result : empty;
  const auto pushback_ms = RetryPushbackMs(result.status());
  AnswerHeader header;
  header.code = static_cast<int32_t>(result.status().code());
  header.is_compile_error = compiled::IsCompileError(result.status()) ? 1 : 0;
  header.has_pushback = pushback_ms.has_value() ? 1 : 0;
  header.pushback_ms = pushback_ms.value_or(0);
  return WriteAnswer(socket, header, message, payload);
}

absl::Status SendPart(int socket, absl::string_view payload) {
  AnswerHeader header;
  header.more = 1;
  return WriteAnswer(socket, header, "", payload);
}

void AwaitParent(int socket) {
  char byte;
  ssize_t got;
  do {
    got = recv(socket, &byte, 1, 0);
  } while (got > 0 || (got < 0 && errno == EINTR));
}

}  // namespace warpcall::inspect
