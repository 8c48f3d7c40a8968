#include "server/process/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::process {
namespace {

// Room for so much is made at first, and then for as much again as has come.
constexpr size_t kReadBytesMin = 64 << 10;

struct FrameHeader {
  uint64_t head_bytes = 0;
  uint64_t body_bytes = 0;
};

// Returns whether the socket is ready for `events` within the timeout.
bool Await(int socket, short events, absl::Duration timeout) {
  const int timeout_ms = timeout == absl::InfiniteDuration()
                             ? -1
                             : static_cast<int>(absl::ToInt64Milliseconds(timeout));
  pollfd watched = {socket, events, 0};
  int ready;
  do {
    ready = poll(&watched, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

absl::Status Ended() { return absl::UnavailableError("the other process ended"); }

absl::Status ReadAll(int socket, char* at, size_t bytes, absl::Duration pause_max) {
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!Await(socket, POLLIN, pause_max))
        return absl::UnavailableError("the other process stopped in the middle of a message");
    } else {
      return Ended();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(int socket, size_t bytes, absl::Duration pause_max) {
  std::string text;
  while (text.size() < bytes) {
    const size_t begin = text.size();
    text.resize(begin + std::min(bytes - begin, std::max(begin, kReadBytesMin)));
    RETURN_IF_ERROR(ReadAll(socket, text.data() + begin, text.size() - begin, pause_max));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::pair<Descriptor, Descriptor>> MakeSockets(int type) {
  int pair[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) != 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("no sockets for another process: ", strerror(errno)));
  return std::pair(Descriptor(pair[0]), Descriptor(pair[1]));
}

void Channel::Shutdown() const { shutdown(socket(), SHUT_RDWR); }

bool Channel::TrySend(absl::string_view head, absl::string_view body) const {
  FrameHeader header = {head.size(), body.size()};
  iovec parts[] = {{&header, sizeof(header)},
                   {const_cast<char*>(head.data()), head.size()},
                   {const_cast<char*>(body.data()), body.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  while (message.msg_iovlen > 0) {
    const ssize_t sent = sendmsg(socket(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!Await(socket(), POLLOUT, pause_max_)) return false;
      continue;
    }
    if (sent < 0) return false;
    auto left = static_cast<size_t>(sent);
    while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen == 0) break;
    message.msg_iov->iov_base = static_cast<char*>(message.msg_iov->iov_base) + left;
    message.msg_iov->iov_len -= left;
  }
  return true;
}

absl::Status Channel::Send(absl::string_view head, absl::string_view body) const {
  WARPCALL_DCHECK(head.size() <= kHeadBytesMax, head.size());
  return TrySend(head, body) ? absl::OkStatus() : Ended();
}

absl::StatusOr<Message> Channel::Receive(size_t body_bytes_max) const {
  FrameHeader header;
  if (!Await(socket(), POLLIN, absl::InfiniteDuration())) return Ended();
  RETURN_IF_ERROR(ReadAll(socket(), reinterpret_cast<char*>(&header), sizeof(header), pause_max_));
  if (header.head_bytes > kHeadBytesMax)
    return absl::InternalError(absl::StrCat("the other process sent a head of ", header.head_bytes,
                                            " bytes; the limit is ", kHeadBytesMax));
  if (header.body_bytes > body_bytes_max)
    return absl::ResourceExhaustedError(
        absl::StrCat(header.body_bytes, " bytes; the limit is ", body_bytes_max));
  Message message;
  ASSIGN_OR_RETURN(message.head, ReadText(socket(), header.head_bytes, pause_max_));
  ASSIGN_OR_RETURN(message.body, ReadText(socket(), header.body_bytes, pause_max_));
  return message;
}

}  // namespace warpcall::process
