// A client that sends any bytes, one by one if need be: no HTTP library would.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

class RawHttp {
 public:
  RawHttp();
  explicit RawHttp(const std::string& address) : RawHttp() { Connect(address); }
  ~RawHttp();
  RawHttp(RawHttp&& other) noexcept;
  RawHttp(const RawHttp&) = delete;
  RawHttp& operator=(const RawHttp&) = delete;

  // Connects to HOST:PORT of IPv4; from the address `source`, where that is given.
  void Connect(const std::string& address, const std::string& source = "");
  bool connected() const { return connected_; }
  // Returns the number of bytes that went out before the server would take no more.
  size_t Send(absl::string_view bytes);
  // Reads until the text has `count` ends of a line,
  // the server closes, or ten seconds have passed.
  std::string ReadLines(int count);
  std::string ReadToEnd();
  // Returns true if bytes or the end have come, or come within `timeout_ms`.
  bool Readable(int timeout_ms);
  // Returns true if the server has closed the connection, or closes it within `timeout_ms`.
  bool Closed(int timeout_ms);

 private:
  int socket_;
  bool connected_ = false;
};

}  // namespace warpcall::testing
