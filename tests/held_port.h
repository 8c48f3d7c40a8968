// Keeps a port of the loopback interface from everyone while nobody listens there: the system may
// give one that has become free to whichever test beside this one starts a server next.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace warpcall::testing {

class HeldPort {
 public:
  // Holds the port of "HOST:PORT", whose server has just ended.
  explicit HeldPort(const std::string& address)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;  // connections to it may not be forgotten yet
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port =
        htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_held_ = bind(socket_, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
  }
  ~HeldPort() { close(socket_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  bool is_held() const { return is_held_; }

 private:
  const int socket_;
  bool is_held_ = false;
};

}  // namespace warpcall::testing
