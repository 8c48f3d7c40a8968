// Just enough HTTP/2 for things that no gRPC library does: stop half-way, vanish, read nothing,
// send a deadline of one nanosecond.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"

namespace warpcall::testing {

class RawHttp2 {
 public:
  // RFC 9113's, for streams and connections.
  static constexpr int64_t kWindowBytesDefault = 65'535;
  static constexpr char kExecuteMethod[] = "/warpcall.v1.KernelService/Execute";

  // Bytes that open a connection and let the server send `window_bytes` on each stream.
  static std::string Preface(int64_t window_bytes = kWindowBytesDefault);
  // The frames of a call of `method` on `stream` with `message`.
  // `timeout` as in "1n", empty for none.
  static std::string CallFrames(uint32_t stream, const std::string& message,
                                const std::string& timeout = "",
                                const std::string& method = kExecuteMethod);

  // Connects to "127.0.0.1:PORT" and sends the preface.
  explicit RawHttp2(const std::string& address, int64_t window_bytes = kWindowBytesDefault);
  ~RawHttp2() { Close(); }
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  // Returns false once something could not be sent.
  bool connected() const { return connected_; }

  // Begins a call of Execute and returns its stream.
  uint32_t Call(const std::string& timeout = "");
  // Sends the gRPC prefix of a message of `bytes`, then `part` of it (within the window); `last`
  // closes our side.
  void SendMessagePart(uint32_t stream, uint32_t bytes, const std::string& part, bool last);
  // Sends `bytes` more, at most 16 KiB, in a frame of their own, as the server's flow control lets
  // us; `last` closes our side. False when the connection ended before.
  bool SendData(uint32_t stream, const std::string& bytes, bool last);
  // Sends frames of data of `stream` as they are, which hold `bytes` together, as the server's flow
  // control lets us. False when the stream or the connection ended before.
  bool SendFrames(uint32_t stream, const std::string& frames, int64_t bytes);
  // Lets the server send `bytes` more of `stream`.
  void Grant(uint32_t stream, int64_t bytes);
  // Sends `bytes` more zeros as the server's flow control lets us, and reads the server's frames
  // meanwhile. Returns false if the connection ended before.
  bool SendZeros(uint32_t stream, int64_t bytes);
  // Bytes as they are.
  void Send(const std::string& bytes);

  // Stops answering pings, like a client whose answers are still on their way.
  void LeavePings() { answers_pings_ = false; }

  // From now on a read that nothing comes for so long counts as the connection's end.
  void LimitReads(absl::Duration timeout);

  // Waits until the server has ended `stream`, by trailers or a reset, or the connection. True for
  // trailers.
  bool AwaitEnd(uint32_t stream);

  // The block of the last HEADERS read, HPACK as it came. gRPC 1.51 writes names and values plainly
  // the first time that a connection uses them: "\x0bgrpc-status\x01" "4".
  const std::string& headers() const { return headers_; }

  // Bytes we sent that the server has not yet read from its socket, as this machine's kernel says;
  // 0 if the kernel knows no such connection.
  int64_t UnreadBytes() const;

  void Close();
  void Abort();         // RST
  void CloseOrderly();  // FIN, and waits for the server's

 private:
  // Waits until the server lets us send `bytes`, and returns how many it does; 0 when the
  // connection ended before.
  int64_t AwaitWindow(uint32_t stream, int64_t bytes);
  bool ReadFrame();
  std::string Receive(size_t bytes);

  int fd_ = -1;
  bool connected_ = false;
  bool answers_pings_ = true;
  uint32_t next_stream_ = 1;
  // Bytes the server allows: on the connection, and beyond its initial window on each stream.
  int64_t window_bytes_ = kWindowBytesDefault;
  int64_t initial_window_bytes_ = kWindowBytesDefault;
  std::map<uint32_t, int64_t> granted_bytes_;
  std::set<uint32_t> resets_;  // streams that the server has ended so
  // The last frame read, as far as it is needed.
  uint8_t type_ = 0;
  uint8_t flags_ = 0;
  uint32_t stream_ = 0;
  std::string headers_;
};

// A TCP connection to "127.0.0.1:PORT", blocking; -1 when it cannot be had.
int ConnectTcp(const std::string& address);

}  // namespace warpcall::testing
