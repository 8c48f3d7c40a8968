// A client that sends what it is told to, byte by byte if need be: no HTTP library would.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

class RawHttp {
 public:
  // Connects to HOST:PORT of IPv4.
  explicit RawHttp(const std::string& address);
  ~RawHttp();
  RawHttp(RawHttp&& other) noexcept;
  RawHttp(const RawHttp&) = delete;
  RawHttp& operator=(const RawHttp&) = delete;

  bool connected() const { return connected_; }
  // How many of the bytes went out before the server would take no more.
  size_t Send(absl::string_view bytes);
  // What comes until there are `count` ends of a line in it, the server closes, or ten seconds
  // pass.
  std::string ReadLines(int count);
  std::string ReadToEnd();
  // Whether the server has closed the connection, or does within `timeout_ms`.
  bool Closed(int timeout_ms);

 private:
  int socket_;
  bool connected_ = false;
};

}  // namespace warpcall::testing
