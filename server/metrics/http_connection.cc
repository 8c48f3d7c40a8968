#include "server/metrics/http_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr size_t kReadBytes = 4096;
// Most bytes to read after the last reply. Closing a socket with unread bytes resets the
// connection, and the client may lose the reply.
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

short HttpConnection::events() const {
  // While the client waits for a rendering, poll tells of a reset alone.
  if (state_ == State::kWaiting) return 0;
  return state_ == State::kReplying ? POLLOUT : POLLIN;
}

bool HttpConnection::Advance(const HttpHandler& handler, int64_t now_ns) {
  // Called without reason, or after a reset.
  if (state_ == State::kWaiting) return false;
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
  if (!reader_.has_head()) {
    if (const int refusal = reader_.ReadHead(&in_); refusal != 0) return Refuse(refusal, now_ns);
    if (!reader_.has_head()) return false;
  }
  const HttpRequest& request = reader_.request();
  const bool ignores_body = request.has_body && !handler.WantsBody(request, peer_);
  if (request.has_body && !ignores_body)
    if (const int refusal = ReadBody(); refusal != 0) return Refuse(refusal, now_ns);
  if (!ignores_body && !reader_.is_whole()) return false;
  keep_alive_ = request.keep_alive && !ignores_body;  // bytes after an unread body are no request
  head_only_ = request.method == "HEAD";
  Reply(handler.Answer(request, peer_), now_ns);
  return true;
}

int HttpConnection::ReadBody() {
  const int refusal = reader_.ReadBody(&in_);
  if (refusal == 0 && !reader_.is_whole() && reader_.request().expects_continue &&
      !std::exchange(told_to_continue_, true))
    send(socket_, kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
  return refusal;
}

void HttpConnection::Reply(HttpReply reply, int64_t now_ns) {
  reader_ = HttpReader();
  told_to_continue_ = false;
  if (reply.scrape.has_value()) {
    deadline_ns_ = std::numeric_limits<int64_t>::max();
    waits_for_ = reply.scrape;
    rendering_ = 0;
    reply_ = std::move(reply);
    state_ = State::kWaiting;
    return;
  }
  deadline_ns_ = now_ns + limits_.reply_ns;
  out_ = WriteHttpHead(reply, reply.body.size(), keep_alive_);
  if (!head_only_) out_ += reply.body;
  written_ = 0;
  state_ = State::kReplying;
}

void HttpConnection::Serve(std::shared_ptr<const std::string> text, int64_t now_ns) {
  WARPCALL_DCHECK(waits_for_.has_value() && state_ == State::kWaiting, state_);
  WARPCALL_DCHECK(text != nullptr);
  deadline_ns_ = now_ns + limits_.reply_ns;
  out_ = WriteHttpHead(reply_, text->size(), keep_alive_);
  if (!head_only_) text_ = std::move(text);
  waits_for_.reset();
  written_ = 0;
  state_ = State::kReplying;
}

bool HttpConnection::Refuse(int status, int64_t now_ns) {
  keep_alive_ = false;
  head_only_ = false;
  Reply({.status = status,
         .body = absl::StrCat("a head may have ", kHttpHeadBytesMax, " bytes, a body ",
                              kHttpBodyBytesMax,
                              "; HTTP/1.1 and 1.0 are understood, lengths and "
                              "names that leave a doubt are not\n")},
        now_ns);
  return true;
}

bool HttpConnection::Write(int64_t now_ns) {
  const size_t bytes = out_.size() + (text_ == nullptr ? 0 : text_->size());
  while (written_ < bytes) {
    const bool first = written_ < out_.size();
    const absl::string_view part = first ? absl::string_view(out_).substr(written_)
                                         : absl::string_view(*text_).substr(written_ - out_.size());
    const int more = first && text_ != nullptr ? MSG_MORE : 0;
    const ssize_t put = send(socket_, part.data(), part.size(), MSG_NOSIGNAL | more);
    if (put < 0) return WouldBlock();
    written_ += static_cast<size_t>(put);
  }
  out_ = std::string();
  text_.reset();
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
