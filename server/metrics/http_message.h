// HTTP/1.1 (RFC 9112) for the operators' port: bytes into a request, a reply into bytes.
// Boost.Beast parses; this file and http_message.cc alone know it. Does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/common/check.h"

namespace warpcall {

inline constexpr size_t kHttpHeadBytesMax = size_t{8} << 10;
inline constexpr size_t kHttpBodyBytesMax = size_t{4} << 10;

// The documents that another thread renders: the metrics in two formats, the server's status in
// two.
enum class Document : uint8_t { kPrometheus, kOpenMetrics, kStatusPage, kStatusJson };

// How a document is rendered for a client.
struct ScrapeKind {
  Document document = Document::kPrometheus;
  bool gzip = false;
  bool operator==(const ScrapeKind&) const = default;
};

struct HttpRequest {
  std::string method;
  std::string path;  // without scheme, authority and query
  // The names by which the request calls the server: its Host header's, an absolute target's.
  std::vector<std::string> hosts;
  bool has_body = false;
  std::string body = {};
  bool expects_continue = false;
  bool keep_alive = true;
  bool takes_open_metrics = false;  // Accept prefers OpenMetrics to plain text, or ranks them equal
  bool takes_gzip = false;  // Accept-Encoding prefers gzip to no encoding, or ranks them equal
};

struct HttpReply {
  int status = 200;
  std::string body = {};
  const char* content_type = "text/plain";
  const char* allow = nullptr;  // for a 405
  std::string headers = {};     // more of them, each with its line break
  // Set: the body is a document, which another thread renders.
  std::optional<ScrapeKind> scrape = std::nullopt;
};

// Reads one request, whose bytes may come in any pieces. A request that proxies and servers could
// understand differently is refused: its body might be taken for a second request.
class HttpReader {
 public:
  HttpReader();
  HttpReader(HttpReader&&) noexcept;
  HttpReader& operator=(HttpReader&&) noexcept;
  ~HttpReader();

  // Each removes what it has read from the front of `bytes`, and returns 0, or the status to refuse
  // the request with. ReadHead: request line and headers. ReadBody: after has_head().
  int ReadHead(std::string* bytes);
  int ReadBody(std::string* bytes);

  bool has_head() const { return has_head_; }
  bool is_whole() const;
  // REQUIRES: has_head(). The body is there when is_whole().
  const HttpRequest& request() const {
    WARPCALL_DCHECK(has_head_);
    return request_;
  }

 private:
  class Parser;

  int FinishHead();

  std::unique_ptr<Parser> parser_;
  bool has_head_ = false;
  HttpRequest request_;
};

// Status line and headers of a reply whose body has `body_bytes`.
std::string WriteHttpHead(const HttpReply& reply, size_t body_bytes, bool keep_alive);

}  // namespace warpcall
