// HTTP/1.1 (RFC 9112) as far as the port for operators needs it: a request out of bytes, a reply
// into bytes. Does no I/O.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall {

inline constexpr size_t kHttpHeadBytesMax = size_t{8} << 10;
inline constexpr size_t kHttpBodyBytesMax = size_t{4} << 10;

struct HttpRequest {
  std::string method;
  std::string path;  // without a query
  bool has_body = false;
  bool chunked = false;
  size_t body_bytes = 0;  // unless chunked; over the limit: some number over it
  bool expects_continue = false;
  bool keep_alive = true;
  bool takes_open_metrics = false;  // by its Accept, no less than plain text
};

struct HttpReply {
  int status = 200;
  std::string body;
  const char* content_type = "text/plain";
  const char* allow = nullptr;  // of a 405
};

// Reads request line and headers: all that comes before the empty line. 0, or the status to refuse
// with.
int ReadHttpHead(absl::string_view head, HttpRequest* request);

// What has come of a request's body.
struct HttpBody {
  int refusal = 0;  // not 0: the status to refuse with
  bool whole = false;
  std::string data;
  size_t bytes = 0;  // that a whole body took
};
HttpBody ReadHttpBody(const HttpRequest& request, absl::string_view bytes);

// The bytes of a reply; `head_only` leaves out the body that the headers tell of.
std::string WriteHttpReply(HttpReply reply, bool head_only, bool keep_alive);

}  // namespace warpcall
