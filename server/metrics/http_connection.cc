#include "server/metrics/http_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

constexpr absl::string_view kHeadEnd = "\r\n\r\n";
constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr size_t kReadBytes = 4096;
// What is read after the last reply. A socket that is closed with bytes unread is reset, and its
// client may lose the reply.
constexpr size_t kDrainedBytesMax = size_t{256} << 10;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

HttpConnection::HttpConnection(int socket, std::string peer, const Limits& limits, int64_t now_ns)
    : socket_(socket),
      peer_(std::move(peer)),
      limits_(limits),
      since_ns_(now_ns),
      deadline_ns_(now_ns + limits.request_ns) {}

HttpConnection::~HttpConnection() { close(socket_); }

short HttpConnection::events() const { return state_ == State::kReplying ? POLLOUT : POLLIN; }

bool HttpConnection::Advance(const HttpHandler& handler, int64_t now_ns) {
  if (state_ == State::kReading && !Read(handler, now_ns)) return false;
  if (state_ == State::kReplying && !Write(now_ns)) return false;
  return state_ != State::kClosing || Drain();
}

bool HttpConnection::Read(const HttpHandler& handler, int64_t now_ns) {
  has_more_ = false;
  while (!TakeRequest(handler, now_ns)) {
    char bytes[kReadBytes];
    const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
    if (got < 0) return WouldBlock();
    if (got == 0) return false;
    deadline_ns_ = std::min(deadline_ns_, now_ns + limits_.request_ns);
    in_.append(bytes, static_cast<size_t>(got));
  }
  return true;
}

bool HttpConnection::TakeRequest(const HttpHandler& handler, int64_t now_ns) {
  // Some clients end a body with a line that is not part of it.
  if (absl::StartsWith(in_, "\r\n")) in_.erase(0, 2);
  const size_t head_bytes = absl::string_view(in_).find(kHeadEnd);
  if (head_bytes == absl::string_view::npos && in_.size() <= kHttpHeadBytesMax) return false;
  if (head_bytes == absl::string_view::npos || head_bytes > kHttpHeadBytesMax) {
    Refuse(431, now_ns);
    return true;
  }
  HttpRequest request;
  const absl::string_view head = absl::string_view(in_).substr(0, head_bytes);
  if (const int refusal = ReadHttpHead(head, &request); refusal != 0) {
    Refuse(refusal, now_ns);
    return true;
  }
  HttpBody body;
  const size_t body_at = head_bytes + kHeadEnd.size();
  if (request.has_body && handler.WantsBody(request, peer_)) {
    body = ReadHttpBody(request, absl::string_view(in_).substr(body_at));
    if (body.refusal != 0) {
      Refuse(body.refusal, now_ns);
      return true;
    }
    if (!body.whole) {
      if (request.expects_continue && !std::exchange(told_to_continue_, true))
        send(socket_, kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
      return false;
    }
  } else if (request.has_body) {
    request.keep_alive = false;  // what comes next is no request
  }
  in_.erase(0, body_at + body.bytes);
  Reply(handler.Answer(request, peer_, body.data), request, now_ns);
  return true;
}

void HttpConnection::Reply(HttpReply reply, const HttpRequest& request, int64_t now_ns) {
  keep_alive_ = request.keep_alive;
  out_ = WriteHttpReply(std::move(reply), request.method == "HEAD", keep_alive_);
  written_ = 0;
  told_to_continue_ = false;
  state_ = State::kReplying;
  deadline_ns_ = now_ns + limits_.reply_ns;
}

void HttpConnection::Refuse(int status, int64_t now_ns) {
  HttpRequest request;
  request.keep_alive = false;
  Reply({.status = status,
         .body = absl::StrCat("a head may have ", kHttpHeadBytesMax, " bytes, a body ",
                              kHttpBodyBytesMax, "; HTTP/1.1 and 1.0 are understood\n")},
        request, now_ns);
}

bool HttpConnection::Write(int64_t now_ns) {
  while (written_ < out_.size()) {
    const ssize_t put = send(socket_, out_.data() + written_, out_.size() - written_, MSG_NOSIGNAL);
    if (put < 0) return WouldBlock();
    written_ += static_cast<size_t>(put);
  }
  out_ = std::string();
  since_ns_ = now_ns;
  if (!keep_alive_) {
    in_ = std::string();
    shutdown(socket_, SHUT_WR);
    state_ = State::kClosing;
    deadline_ns_ = now_ns + limits_.goodbye_ns;
    return true;
  }
  state_ = State::kReading;
  has_more_ = !in_.empty();
  deadline_ns_ = now_ns + (has_more_ ? limits_.request_ns : limits_.idle_ns);
  return true;
}

bool HttpConnection::Drain() {
  char bytes[kReadBytes];
  while (drained_ < kDrainedBytesMax) {
    const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
    if (got < 0) return WouldBlock();
    if (got == 0) return false;
    drained_ += static_cast<size_t>(got);
  }
  return false;
}

}  // namespace warpcall
