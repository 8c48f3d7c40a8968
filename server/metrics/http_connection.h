// One client of the port for operators: never waits, and holds little memory whatever it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "server/metrics/http_message.h"

namespace warpcall {

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Called before the body of a request is read. False: the body does not matter.
  virtual bool WantsBody(const HttpRequest& request, const std::string& peer) const = 0;
  virtual HttpReply Answer(const HttpRequest& request, const std::string& peer,
                           absl::string_view body) const = 0;
};

class HttpConnection {
 public:
  struct Limits {
    int64_t request_ns;  // for a request to come, from its first byte or the connection's start
    int64_t reply_ns;    // for a reply to be taken
    int64_t idle_ns;     // between requests
    int64_t goodbye_ns;  // for a client to close, after the last reply
  };

  // Takes over a socket that does not block.
  HttpConnection(int socket, std::string peer, const Limits& limits, int64_t now_ns);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  int socket() const { return socket_; }
  short events() const;  // what to poll for
  // Whether Advance has something to do that no event tells of.
  bool has_more() const { return has_more_; }
  bool replies() const { return state_ == State::kReplying; }
  int64_t deadline_ns() const { return deadline_ns_; }
  // When it last was new, or done with a request.
  int64_t since_ns() const { return since_ns_; }

  // Reads, answers one request at most, writes. False: it is over.
  bool Advance(const HttpHandler& handler, int64_t now_ns);

 private:
  enum class State : uint8_t { kReading, kReplying, kClosing };

  bool Read(const HttpHandler& handler, int64_t now_ns);
  // Answers the request that has come. False: it has not come in full.
  bool TakeRequest(const HttpHandler& handler, int64_t now_ns);
  void Reply(HttpReply reply, const HttpRequest& request, int64_t now_ns);
  void Refuse(int status, int64_t now_ns);
  bool Write(int64_t now_ns);
  bool Drain();

  const int socket_;
  const std::string peer_;
  const Limits limits_;
  State state_ = State::kReading;
  std::string in_;
  bool told_to_continue_ = false;
  bool keep_alive_ = true;
  bool has_more_ = false;
  std::string out_;
  size_t written_ = 0;
  size_t drained_ = 0;
  int64_t since_ns_;
  int64_t deadline_ns_;
};

}  // namespace warpcall
