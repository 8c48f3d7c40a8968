#include "server/metrics/http_message.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";
// The line before a chunk, with whatever extensions.
constexpr size_t kChunkLineBytesMax = 256;
// A body may come in chunks of a byte, each with its length.
constexpr size_t kChunkedBytesMax = 8 * kHttpBodyBytesMax;

bool IsDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Two lengths, or a length beside chunks, are how requests are smuggled past proxies.
int ReadContentLength(absl::string_view value, HttpRequest* request) {
  if (!IsDigits(value) || request->has_body) return 400;
  if (!absl::SimpleAtoi(value, &request->body_bytes)) request->body_bytes = kHttpBodyBytesMax + 1;
  request->has_body = request->body_bytes > 0;
  return 0;
}

struct Range {
  double quality = 0;
  bool is_open_metrics = false;
  bool is_text = false;
};

// One of Accept's: RFC 9110, section 12.5.1. Versions of OpenMetrics beside 1.0 are others.
Range ReadRange(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  const absl::string_view type = absl::StripAsciiWhitespace(parts[0]);
  Range range{1, absl::EqualsIgnoreCase(type, "application/openmetrics-text"),
              absl::EqualsIgnoreCase(type, "text/plain")};
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(pair.first);
    const absl::string_view value = absl::StripAsciiWhitespace(pair.second);
    if (absl::EqualsIgnoreCase(name, "q") && !absl::SimpleAtod(value, &range.quality))
      range.quality = 0;
    if (range.is_open_metrics && absl::EqualsIgnoreCase(name, "version"))
      range.is_open_metrics = value == "1.0.0" || value == "\"1.0.0\"";
  }
  return range;
}

bool TakesOpenMetrics(absl::string_view accept) {
  double open_metrics = 0;
  double text = 0;
  for (const absl::string_view part : absl::StrSplit(accept, ',')) {
    const Range range = ReadRange(part);
    if (range.is_open_metrics) open_metrics = std::max(open_metrics, range.quality);
    if (range.is_text) text = std::max(text, range.quality);
  }
  return open_metrics > 0 && open_metrics >= text;
}

int ReadHeader(absl::string_view name, absl::string_view value, HttpRequest* request) {
  if (absl::EqualsIgnoreCase(name, "Content-Length")) return ReadContentLength(value, request);
  if (absl::EqualsIgnoreCase(name, "Transfer-Encoding")) {
    if (request->has_body) return 400;
    request->has_body = request->chunked = true;
    return absl::EqualsIgnoreCase(value, "chunked") ? 0 : 501;
  }
  if (absl::EqualsIgnoreCase(name, "Accept")) request->takes_open_metrics = TakesOpenMetrics(value);
  if (absl::EqualsIgnoreCase(name, "Expect"))
    request->expects_continue = absl::EqualsIgnoreCase(value, "100-continue");
  if (absl::EqualsIgnoreCase(name, "Connection"))
    for (const absl::string_view option : absl::StrSplit(value, ','))
      if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(option), "close"))
        request->keep_alive = false;
  return 0;
}

int ReadRequestLine(absl::string_view line, HttpRequest* request) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || words[0].empty() || !absl::StartsWith(words[2], "HTTP/")) return 400;
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return 505;
  request->method = std::string(words[0]);
  request->path = std::string(words[1].substr(0, words[1].find('?')));
  request->keep_alive = words[2] == "HTTP/1.1";
  return 0;
}

HttpBody Refusal(int status) {
  HttpBody body;
  body.refusal = status;
  return body;
}

HttpBody ReadChunks(absl::string_view bytes) {
  HttpBody body;
  for (size_t at = 0;;) {
    const size_t line_end = bytes.substr(at, kChunkLineBytesMax).find(kLineEnd);
    const bool cut = bytes.size() - at >= kChunkLineBytesMax;
    if (line_end == absl::string_view::npos)
      return cut ? Refusal(400) : bytes.size() > kChunkedBytesMax ? Refusal(413) : body;
    const absl::string_view line = bytes.substr(at, line_end);
    at += line_end + kLineEnd.size();
    uint32_t chunk_bytes = 0;
    if (!absl::SimpleHexAtoi(line.substr(0, line.find(';')), &chunk_bytes)) return Refusal(400);
    if (chunk_bytes > kHttpBodyBytesMax - body.data.size()) return Refusal(413);
    // Trailers would come before the last line's end; nobody sends us any.
    if (bytes.size() - at < chunk_bytes + kLineEnd.size())
      return bytes.size() > kChunkedBytesMax ? Refusal(413) : body;
    if (bytes.substr(at + chunk_bytes, kLineEnd.size()) != kLineEnd) return Refusal(400);
    body.data.append(bytes.data() + at, chunk_bytes);
    at += chunk_bytes + kLineEnd.size();
    if (chunk_bytes > 0) continue;
    body.whole = true;
    body.bytes = at;
    return body;
  }
}

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "HTTP Version Not Supported";
  }
}

}  // namespace

int ReadHttpHead(absl::string_view head, HttpRequest* request) {
  const std::vector<absl::string_view> lines = absl::StrSplit(head, kLineEnd);
  if (const int refusal = ReadRequestLine(lines[0], request); refusal != 0) return refusal;
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t colon = lines[i].find(':');
    if (colon == 0 || colon == absl::string_view::npos) return 400;
    const absl::string_view value = absl::StripAsciiWhitespace(lines[i].substr(colon + 1));
    if (const int refusal = ReadHeader(lines[i].substr(0, colon), value, request); refusal != 0)
      return refusal;
  }
  return 0;
}

HttpBody ReadHttpBody(const HttpRequest& request, absl::string_view bytes) {
  if (request.chunked) return ReadChunks(bytes);
  if (request.body_bytes > kHttpBodyBytesMax) return Refusal(413);
  HttpBody body;
  if (bytes.size() < request.body_bytes) return body;
  body.whole = true;
  body.data = std::string(bytes.substr(0, request.body_bytes));
  body.bytes = request.body_bytes;
  return body;
}

std::string WriteHttpReply(HttpReply reply, bool head_only, bool keep_alive) {
  std::string head = absl::StrCat("HTTP/1.1 ", reply.status, " ", ReasonOf(reply.status),
                                  "\r\nContent-Type: ", reply.content_type,
                                  "\r\nContent-Length: ", reply.body.size(),
                                  "\r\nConnection: ", keep_alive ? "keep-alive" : "close", "\r\n");
  if (reply.allow != nullptr) absl::StrAppend(&head, "Allow: ", reply.allow, "\r\n");
  absl::StrAppend(&head, kLineEnd);
  if (head_only) return head;
  reply.body.insert(0, head);
  return std::move(reply.body);
}

}  // namespace warpcall
