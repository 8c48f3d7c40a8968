#include "server/metrics/http_message.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall {
namespace {

namespace http = boost::beast::http;

constexpr int kBadRequest = 400;
constexpr int kTooLarge = 413;
constexpr int kNotImplemented = 501;
constexpr absl::string_view kLastChunk = "0\r\n\r\n";

absl::string_view ToAbsl(boost::beast::string_view text) { return {text.data(), text.size()}; }

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

// Accept-Encoding: RFC 9110, section 12.5.3. Without a word on it gzip is not taken.
bool TakesGzip(absl::string_view accept_encoding) {
  std::optional<double> gzip, any;
  double identity = 0;
  for (const absl::string_view part : absl::StrSplit(accept_encoding, ',')) {
    const std::vector<absl::string_view> words = absl::StrSplit(part, ';');
    const absl::string_view coding = absl::StripAsciiWhitespace(words[0]);
    double quality = 1;
    for (size_t i = 1; i < words.size(); ++i) {
      absl::string_view word = absl::StripAsciiWhitespace(words[i]);
      if ((absl::ConsumePrefix(&word, "q=") || absl::ConsumePrefix(&word, "Q=")) &&
          !absl::SimpleAtod(word, &quality))
        quality = 0;
    }
    if (absl::EqualsIgnoreCase(coding, "gzip") || absl::EqualsIgnoreCase(coding, "x-gzip"))
      gzip = quality;
    if (coding == "*") any = quality;
    if (absl::EqualsIgnoreCase(coding, "identity")) identity = quality;
  }
  const double taken = gzip.value_or(any.value_or(0));
  return taken > 0 && taken >= identity;
}

int StatusOf(const boost::beast::error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return kTooLarge;
  if (error == http::error::bad_version) return 505;
  return kBadRequest;
}

// Splits `http://host/path` (RFC 9112, section 3.2.2) and `/path`; cuts the query.
void ReadTarget(absl::string_view target, HttpRequest* request) {
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    const absl::string_view authority = target.substr(0, target.find_first_of("/?"));
    request->hosts.emplace_back(authority);
    target.remove_prefix(authority.size());
    if (!absl::StartsWith(target, "/")) target = "/";
    break;
  }
  request->path = std::string(target.substr(0, target.find('?')));
}

}  // namespace

class HttpReader::Parser : public http::request_parser<http::string_body> {
 public:
  Parser() {
    header_limit(kHttpHeadBytesMax);
    // A body that no route reads may have any length; FinishHead sets the limit of the others.
    body_limit(std::numeric_limits<uint64_t>::max());
  }

  // Parses `bytes` and removes what it has parsed. Returns 0, or the HTTP status to refuse with.
  int Read(std::string* bytes) {
    boost::beast::error_code error;
    const bool is_head = !is_header_done();
    const size_t taken = put(boost::asio::const_buffer(bytes->data(), bytes->size()), error);
    // Beast joins the lines of a folded header, which others take for several headers.
    const absl::string_view text = absl::string_view(*bytes).substr(0, taken);
    const bool folds = absl::StrContains(text, "\r\n ") || absl::StrContains(text, "\r\n\t");
    bytes->erase(0, taken);
    if (is_head && folds) return kBadRequest;
    waits_ = error == http::error::need_more;
    if (error && !waits_) return StatusOf(error);
    // The line before a chunk, or the trailers, must fit into what a head may have.
    return waits_ && bytes->size() > kHttpHeadBytesMax ? kTooLarge : 0;
  }

  // Returns true if Read needs more bytes than it was given.
  bool waits() const { return waits_; }

 private:
  bool waits_ = false;
};

HttpReader::HttpReader() : parser_(std::make_unique<Parser>()) {}
HttpReader::HttpReader(HttpReader&&) noexcept = default;
HttpReader& HttpReader::operator=(HttpReader&&) noexcept = default;
HttpReader::~HttpReader() = default;

bool HttpReader::is_whole() const { return has_head_ && parser_->is_done(); }

int HttpReader::ReadHead(std::string* bytes) {
  // Some clients end a body with a line that is not part of it.
  while (!parser_->got_some() && absl::StartsWith(*bytes, "\r\n")) bytes->erase(0, 2);
  if (bytes->empty() || (!parser_->got_some() && *bytes == "\r")) return 0;
  if (const int refusal = parser_->Read(bytes); refusal != 0) return refusal;
  if (!parser_->is_header_done()) return 0;
  has_head_ = true;
  return FinishHead();
}

// Beast refuses two lengths that differ, a length beside chunks, and names that are no tokens.
int HttpReader::FinishHead() {
  const auto& message = parser_->get();
  if (message.count(http::field::host) != 1 && message.version() != 10) return kBadRequest;
  if (message.count(http::field::host) > 1) return kBadRequest;
  if (message.count(http::field::content_length) > 1) return kBadRequest;
  // Beast takes a list of equal lengths.
  if (!absl::c_all_of(ToAbsl(message[http::field::content_length]), absl::ascii_isdigit))
    return kBadRequest;
  if (const size_t codings = message.count(http::field::transfer_encoding); codings > 0) {
    if (codings > 1 || message.version() == 10) return kBadRequest;
    if (!absl::EqualsIgnoreCase(ToAbsl(message[http::field::transfer_encoding]), "chunked"))
      return kNotImplemented;
  }
  request_.method = std::string(ToAbsl(message.method_string()));
  ReadTarget(ToAbsl(message.target()), &request_);
  if (message.count(http::field::host) == 1)
    request_.hosts.emplace_back(ToAbsl(message[http::field::host]));
  request_.has_body = !parser_->is_done();
  parser_->body_limit(kHttpBodyBytesMax);  // of chunks; ReadBody looks at a length
  request_.expects_continue =
      absl::EqualsIgnoreCase(ToAbsl(message[http::field::expect]), "100-continue");
  request_.keep_alive = message.keep_alive();
  request_.takes_open_metrics = TakesOpenMetrics(ToAbsl(message[http::field::accept]));
  request_.takes_gzip = TakesGzip(ToAbsl(message[http::field::accept_encoding]));
  return 0;
}

int HttpReader::ReadBody(std::string* bytes) {
  if (parser_->content_length().value_or(0) > kHttpBodyBytesMax) return kTooLarge;
  // The rest of chunks has so many bytes at least. Given fewer, Beast asserts what need not hold.
  const size_t bytes_min = parser_->chunked() ? kLastChunk.size() : 1;
  while (!parser_->is_done() && bytes->size() >= bytes_min) {
    if (const int refusal = parser_->Read(bytes); refusal != 0) return refusal;
    if (parser_->waits()) break;
  }
  if (parser_->is_done()) request_.body = std::move(parser_->get().body());
  return 0;
}

std::string WriteHttpHead(const HttpReply& reply, size_t body_bytes, bool keep_alive) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(reply.status));
  std::string head = absl::StrCat("HTTP/1.1 ", reply.status, " ", ToAbsl(reason),
                                  "\r\nContent-Type: ", reply.content_type, "\r\n");
  if (reply.scrape.has_value())
    absl::StrAppend(&head, reply.scrape->gzip ? "Content-Encoding: gzip\r\n" : "",
                    "Vary: Accept, Accept-Encoding\r\n");
  absl::StrAppend(&head, "Content-Length: ", body_bytes,
                  "\r\nConnection: ", keep_alive ? "keep-alive" : "close", "\r\n");
  if (reply.allow != nullptr) absl::StrAppend(&head, "Allow: ", reply.allow, "\r\n");
  absl::StrAppend(&head, reply.headers, "\r\n");
  return head;
}

}  // namespace warpcall
