// Just enough HTTP/2 to do what no gRPC library does: stop half-way, vanish, send a deadline of one
// nanosecond.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace warpcall::testing {

class RawHttp2 {
 public:
  // `address`: "127.0.0.1:PORT". Opens stream 1 with a call of Execute; `timeout` as in "1n", empty
  // for none.
  RawHttp2(const std::string& address, const std::string& timeout) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    SendFrame(kSettings, 0, 0, "");
    std::string headers = Header(":method", "POST") + Header(":scheme", "http") +
                          Header(":path", "/warpcall.v1.KernelService/Execute") +
                          Header(":authority", "localhost") + Header("te", "trailers") +
                          Header("content-type", "application/grpc");
    if (!timeout.empty()) headers += Header("grpc-timeout", timeout);
    SendFrame(kHeaders, kEndHeaders, 1, headers);
  }
  ~RawHttp2() { Close(); }

  bool connected() const { return connected_; }

  // The gRPC prefix of a message of `bytes`, then `part` of it; `last` closes our side.
  void SendMessagePart(uint32_t bytes, const std::string& part, bool last) {
    std::string data(1, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) data.push_back(static_cast<char>(bytes >> shift));
    SendFrame(kData, last ? kEndStream : 0, 1, data + part);
  }

  // Waits until the server has ended stream 1, by trailers or a reset, or the connection.
  void AwaitEnd() {
    for (;;) {
      const std::string head = Receive(9);
      if (head.size() < 9) return;
      const auto byte = [&](size_t i) { return static_cast<uint8_t>(head[i]); };
      Receive(size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2));
      const bool ends = byte(3) == kReset || (byte(3) == kHeaders && (byte(4) & kEndStream) != 0);
      if (ends && byte(8) == 1) return;
    }
  }

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  enum Type : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4 };
  enum Flag : uint8_t { kEndStream = 1, kEndHeaders = 4 };

  // HPACK: literal without indexing, no Huffman code; lengths below 127.
  static std::string Header(const std::string& name, const std::string& value) {
    std::string field(1, '\0');
    field.push_back(static_cast<char>(name.size()));
    field += name;
    field.push_back(static_cast<char>(value.size()));
    return field + value;
  }
  void SendFrame(Type type, uint8_t flags, uint32_t stream, const std::string& payload) {
    std::string frame;
    for (int shift = 16; shift >= 0; shift -= 8)
      frame.push_back(static_cast<char>(payload.size() >> shift));
    frame.push_back(static_cast<char>(type));
    frame.push_back(static_cast<char>(flags));
    for (int shift = 24; shift >= 0; shift -= 8)
      frame.push_back(static_cast<char>(stream >> shift));
    Send(frame + payload);
  }
  void Send(const std::string& bytes) {
    connected_ = connected_ && send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                                   static_cast<ssize_t>(bytes.size());
  }

  std::string Receive(size_t bytes) {
    std::string text(bytes, '\0');
    size_t have = 0;
    for (ssize_t got; have < bytes && (got = read(fd_, &text[have], bytes - have)) > 0;)
      have += static_cast<size_t>(got);
    text.resize(have);
    return text;
  }

  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace warpcall::testing
