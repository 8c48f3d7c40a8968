#include "tests/e2e/raw_http2.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace warpcall::testing {
namespace {

// RFC 9113, sections 6 and 4.1; frames of at most 16 KiB need no leave.
enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
};
enum Flag : uint8_t { kEndStream = 1, kAck = 1, kEndHeaders = 4 };
constexpr uint16_t kInitialWindowSetting = 4;
constexpr int64_t kFrameBytesMax = 16'384;
constexpr size_t kFrameHeadBytes = 9;

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text.push_back(static_cast<char>(value >> shift));
  return text;
}

uint32_t FromBigEndian(const std::string& text, size_t begin, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = begin; i < begin + bytes; ++i) value = value << 8 | static_cast<uint8_t>(text[i]);
  return value;
}

std::string Frame(Type type, uint8_t flags, uint32_t stream, const std::string& payload) {
  return BigEndian(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         BigEndian(stream, 4) + payload;
}

// HPACK: literal without indexing, no Huffman code; lengths below 127.
std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

std::string HeadersFrame(uint32_t stream, const std::string& timeout, const std::string& method) {
  std::string headers = Header(":method", "POST") + Header(":scheme", "http") +
                        Header(":path", method) + Header(":authority", "localhost") +
                        Header("te", "trailers") + Header("content-type", "application/grpc");
  if (!timeout.empty()) headers += Header("grpc-timeout", timeout);
  return Frame(kHeaders, kEndHeaders, stream, headers);
}

// Uncompressed, and its length.
std::string MessagePrefix(size_t bytes) { return BigEndian(0, 1) + BigEndian(bytes, 4); }

}  // namespace

int ConnectTcp(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

std::string RawHttp2::Preface(int64_t window_bytes) {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
         Frame(kSettings, 0, 0,
               BigEndian(kInitialWindowSetting, 2) +
                   BigEndian(static_cast<uint64_t>(window_bytes), 4));
}

std::string RawHttp2::CallFrames(uint32_t stream, const std::string& message,
                                 const std::string& timeout, const std::string& method) {
  return HeadersFrame(stream, timeout, method) +
         Frame(kData, kEndStream, stream, MessagePrefix(message.size()) + message);
}

RawHttp2::RawHttp2(const std::string& address, int64_t window_bytes)
    : fd_(ConnectTcp(address)), connected_(fd_ >= 0) {
  Send(Preface(window_bytes));
}

uint32_t RawHttp2::Call(const std::string& timeout) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  Send(HeadersFrame(stream, timeout, kExecuteMethod));
  return stream;
}

void RawHttp2::SendMessagePart(uint32_t stream, uint32_t bytes, const std::string& part,
                               bool last) {
  const std::string data = MessagePrefix(bytes) + part;
  window_bytes_ -= static_cast<int64_t>(data.size());
  granted_bytes_[stream] -= static_cast<int64_t>(data.size());
  Send(Frame(kData, last ? kEndStream : 0, stream, data));
}

int64_t RawHttp2::AwaitWindow(uint32_t stream, int64_t bytes) {
  while (connected_ && resets_.count(stream) == 0) {
    const int64_t window = std::min(window_bytes_, initial_window_bytes_ + granted_bytes_[stream]);
    if (window >= bytes) return window;
    if (!ReadFrame()) break;
  }
  return 0;
}

bool RawHttp2::SendData(uint32_t stream, const std::string& bytes, bool last) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (AwaitWindow(stream, size) < size) return false;
  window_bytes_ -= size;
  granted_bytes_[stream] -= size;
  Send(Frame(kData, last ? kEndStream : 0, stream, bytes));
  return connected_;
}

bool RawHttp2::SendFrames(uint32_t stream, const std::string& frames, int64_t bytes) {
  if (AwaitWindow(stream, bytes) < bytes) return false;
  window_bytes_ -= bytes;
  granted_bytes_[stream] -= bytes;
  Send(frames);
  return connected_;
}

void RawHttp2::Grant(uint32_t stream, int64_t bytes) {
  for (const uint32_t of : {uint32_t{0}, stream})
    Send(Frame(kWindowUpdate, 0, of, BigEndian(static_cast<uint64_t>(bytes), 4)));
}

bool RawHttp2::SendZeros(uint32_t stream, int64_t bytes) {
  while (bytes > 0) {
    const int64_t window = AwaitWindow(stream, 1);
    if (window == 0) return false;
    const int64_t now_bytes = std::min({bytes, window, kFrameBytesMax});
    if (!SendData(stream, std::string(static_cast<size_t>(now_bytes), '\0'), false)) return false;
    bytes -= now_bytes;
  }
  return connected_;
}

void RawHttp2::Send(const std::string& bytes) {
  connected_ = connected_ && send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                                 static_cast<ssize_t>(bytes.size());
}

void RawHttp2::LimitReads(absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

bool RawHttp2::AwaitEnd(uint32_t stream) {
  while (resets_.count(stream) == 0 && ReadFrame()) {
    if (stream_ != stream) continue;
    if (type_ == kReset) return false;
    if (type_ == kHeaders && (flags_ & kEndStream) != 0) return true;
  }
  return false;
}

bool RawHttp2::ReadFrame() {
  const std::string head = Receive(kFrameHeadBytes);
  if (head.size() < kFrameHeadBytes) return false;
  type_ = static_cast<uint8_t>(head[3]);
  flags_ = static_cast<uint8_t>(head[4]);
  stream_ = FromBigEndian(head, 5, 4);
  const std::string payload = Receive(FromBigEndian(head, 0, 3));
  if (type_ == kWindowUpdate && payload.size() == 4)
    (stream_ == 0 ? window_bytes_ : granted_bytes_[stream_]) += FromBigEndian(payload, 0, 4);
  if (type_ == kHeaders) headers_ = payload;
  if (type_ == kReset) resets_.insert(stream_);
  const bool asks =
      (type_ == kSettings || (type_ == kPing && answers_pings_)) && (flags_ & kAck) == 0;
  // Without it gRPC grants no more than a few MiB.
  if (asks) Send(Frame(static_cast<Type>(type_), kAck, 0, type_ == kPing ? payload : ""));
  for (size_t i = 0; type_ == kSettings && i + 6 <= payload.size(); i += 6) {
    if (FromBigEndian(payload, i, 2) == kInitialWindowSetting)
      initial_window_bytes_ = FromBigEndian(payload, i + 2, 4);
  }
  return true;
}

std::string RawHttp2::Receive(size_t bytes) {
  std::string text(bytes, '\0');
  size_t have = 0;
  for (ssize_t got; have < bytes && (got = read(fd_, &text[have], bytes - have)) > 0;)
    have += static_cast<size_t>(got);
  text.resize(have);
  return text;
}

int64_t RawHttp2::UnreadBytes() const {
  sockaddr_in own = {};
  socklen_t bytes = sizeof(own);
  if (fd_ < 0 || getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) return 0;
  // "sl local_address rem_address st tx_queue:rx_queue ...", all in hexadecimal.
  const std::string remote = absl::StrFormat(":%04X", ntohs(own.sin_port));
  // The server's socket may be one of IPv6 that takes IPv4, too.
  for (const char* const name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(name);
    for (std::string line; std::getline(table, line);) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() < 5 || !absl::EndsWith(words[2], remote)) continue;
      return std::stoll(words[4].substr(words[4].find(':') + 1), nullptr, 16);
    }
  }
  return 0;
}

void RawHttp2::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  connected_ = false;
}

void RawHttp2::CloseOrderly() {
  shutdown(fd_, SHUT_WR);
  // A socket closed with bytes unread would send RST instead.
  while (!Receive(4096).empty()) {
  }
  Close();
}

void RawHttp2::Abort() {
  const linger at_once = {1, 0};
  if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

}  // namespace warpcall::testing
