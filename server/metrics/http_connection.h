// One client of the operators' port: never waits, and holds little memory whatever it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/metrics/http_message.h"

namespace warpcall {

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Called before the body of a request is read. False: the body does not matter.
  virtual bool WantsBody(const HttpRequest& request, const std::string& peer) const = 0;
  virtual HttpReply Answer(const HttpRequest& request, const std::string& peer) const = 0;
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
  const std::string& peer() const { return peer_; }
  short events() const;  // events to poll for
  // Returns true if Advance has work to do without any further event.
  bool has_more() const { return has_more_; }
  bool replies() const { return state_ == State::kWaiting || state_ == State::kReplying; }
  // None while the client waits for a rendering, which a busy machine may delay.
  int64_t deadline_ns() const { return deadline_ns_; }
  // Time when the connection was accepted or last finished a request.
  int64_t since_ns() const { return since_ns_; }

  // Reads, answers at most one request, writes. Returns false if the connection is over.
  bool Advance(const HttpHandler& handler, int64_t now_ns);

  // The document that the client waits for; set by Advance, cleared by Serve.
  std::optional<ScrapeKind> waits_for() const { return waits_for_; }
  // The number of the rendering that the client waits for; 0: not asked for yet.
  uint64_t rendering() const { return rendering_; }
  void set_rendering(uint64_t number) { rendering_ = number; }
  // Answers with a rendering. REQUIRES: waits_for() is its kind.
  void Serve(std::shared_ptr<const std::string> text, int64_t now_ns);
  // The rendering that is being sent, or null.
  const std::string* text() const { return text_.get(); }

 private:
  enum class State : uint8_t { kReading, kWaiting, kReplying, kClosing };

  bool Read(const HttpHandler& handler, int64_t now_ns);
  // Answers the request that has come. False: it has not come in full.
  bool TakeRequest(const HttpHandler& handler, int64_t now_ns);
  // Reads the body that `handler` wants. 0, or the status to refuse with.
  int ReadBody();
  void Reply(HttpReply reply, int64_t now_ns);
  bool Refuse(int status, int64_t now_ns);  // true: the request is answered
  bool Write(int64_t now_ns);
  bool Drain();

  const int socket_;
  const std::string peer_;
  const Limits limits_;
  State state_ = State::kReading;
  std::string in_;
  HttpReader reader_;
  bool told_to_continue_ = false;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool has_more_ = false;
  HttpReply reply_;  // while the client waits for a rendering
  std::optional<ScrapeKind> waits_for_;
  uint64_t rendering_ = 0;
  std::string out_;                          // sent first
  std::shared_ptr<const std::string> text_;  // sent after out_; may be null
  size_t written_ = 0;
  size_t drained_ = 0;
  int64_t since_ns_;
  int64_t deadline_ns_;
};

}  // namespace warpcall
