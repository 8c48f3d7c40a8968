#include "tests/client/stalled_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace warpcall::testing {
namespace {

// RFC 9113: a frame is length (3 bytes), type, flags, stream (4 bytes), payload.
// SETTINGS with INITIAL_WINDOW_SIZE (4) = 2^31 - 1, then WINDOW_UPDATE of the connection by 2^30.
constexpr char kGreeting[] =
    "\x00\x00\x06\x04\x00\x00\x00\x00\x00"
    "\x00\x04\x7F\xFF\xFF\xFF"
    "\x00\x00\x04\x08\x00\x00\x00\x00\x00"
    "\x40\x00\x00\x00";
constexpr absl::string_view kGreetingView(kGreeting, sizeof kGreeting - 1);

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

}  // namespace

StalledPeer::StalledPeer(absl::Duration greeting_delay)
    : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  Require(listener_ >= 0, "socket");
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  Require(bind(listener_, reinterpret_cast<sockaddr*>(&name), size) == 0, "bind");
  Require(listen(listener_, 1) == 0, "listen");
  Require(getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size) == 0, "getsockname");
  address_ = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  thread_ = std::thread([this, greeting_delay] {
    connection_ = accept(listener_, nullptr, nullptr);
    Require(connection_ >= 0, "accept");
    absl::SleepFor(greeting_delay);
    Require(send(connection_, kGreetingView.data(), kGreetingView.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(kGreetingView.size()),
            "send");
  });
}

StalledPeer::~StalledPeer() {
  thread_.join();
  close(connection_);
  close(listener_);
}

}  // namespace warpcall::testing
