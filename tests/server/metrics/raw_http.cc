#include "tests/server/metrics/raw_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace warpcall::testing {
namespace {

// Repeats `call` while it is interrupted, as in a process that was stopped and goes on.
template <typename Call>
auto Uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

ssize_t Receive(int socket, void* bytes, size_t count, int flags) {
  return Uninterrupted([&] { return recv(socket, bytes, count, flags); });
}

}  // namespace

RawHttp::RawHttp() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

void RawHttp::Connect(const std::string& text, const std::string& source) {
  const size_t colon = text.rfind(':');
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(text.substr(colon + 1).c_str())));
  inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr);
  sockaddr_in from = {};
  from.sin_family = AF_INET;
  if (inet_pton(AF_INET, source.c_str(), &from.sin_addr) == 1 &&
      bind(socket_, reinterpret_cast<sockaddr*>(&from), sizeof(from)) != 0)
    return;
  const timeval patience = {60, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

RawHttp::RawHttp(RawHttp&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}

RawHttp::~RawHttp() {
  if (socket_ >= 0) close(socket_);
}

size_t RawHttp::Send(absl::string_view bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t put = Uninterrupted(
        [&] { return send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL); });
    if (put <= 0) break;
    sent += static_cast<size_t>(put);
  }
  return sent;
}

std::string RawHttp::ReadLines(int count) {
  std::string text;
  for (char c; count > 0 && Receive(socket_, &c, 1, 0) == 1;) {
    text.push_back(c);
    if (c == '\n') --count;
  }
  return text;
}

std::string RawHttp::ReadToEnd() {
  std::string text;
  char bytes[65536];
  for (ssize_t got; (got = Receive(socket_, bytes, sizeof(bytes), 0)) > 0;)
    text.append(bytes, static_cast<size_t>(got));
  return text;
}

bool RawHttp::Readable(int timeout_ms) {
  pollfd polled = {socket_, POLLIN, 0};
  return Uninterrupted([&] { return poll(&polled, 1, timeout_ms); }) > 0;
}

bool RawHttp::Closed(int timeout_ms) {
  if (!Readable(timeout_ms)) return false;
  char c;
  return Receive(socket_, &c, 1, MSG_PEEK) <= 0;
}

}  // namespace warpcall::testing
