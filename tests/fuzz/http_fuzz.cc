#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/metrics/http_message.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

struct Requests {
  std::vector<std::string> read;
  std::vector<absl::string_view> heads;  // parts of the input
  bool refused = false;
  size_t held_bytes_max = 0;
};

// Reads the requests of `input`, which comes in pieces of `piece_bytes`.
Requests ReadRequests(absl::string_view input, size_t piece_bytes) {
  Requests requests;
  HttpReader reader;
  std::string bytes;
  for (size_t at = 0, begin = 0;;) {
    int refusal = reader.has_head() ? 0 : reader.ReadHead(&bytes);
    if (refusal == 0 && reader.has_head() && !reader.is_whole()) refusal = reader.ReadBody(&bytes);
    requests.refused = refusal != 0;
    if (requests.refused) return requests;
    requests.held_bytes_max = std::max(requests.held_bytes_max, bytes.size());
    if (reader.is_whole()) {
      const HttpRequest& request = reader.request();
      requests.read.push_back(
          absl::StrCat(request.method, " ", request.path, " ", request.body, request.keep_alive));
      absl::string_view text = input.substr(begin);
      while (absl::ConsumePrefix(&text, "\r\n")) {
      }
      requests.heads.push_back(text.substr(0, text.find("\r\n\r\n")));
      begin = at - bytes.size();
      reader = HttpReader();
    } else if (at == input.size()) {
      return requests;
    } else {
      const absl::string_view piece = input.substr(at, piece_bytes);
      absl::StrAppend(&bytes, piece);
      at += piece.size();
    }
  }
}

// Returns true if a lenient reader could take `line` for the length of a body.
bool NamesLength(absl::string_view line) {
  const std::string lower = absl::AsciiStrToLower(line);
  return absl::StrContains(lower, "content-length") ||
         absl::StrContains(lower, "transfer-encoding");
}

// Returns true if every reader finds one length for the body of a request with this head.
bool IsPlain(absl::string_view head) {
  int lengths = 0;
  bool first = true;
  for (absl::string_view line : absl::StrSplit(head, "\r\n")) {
    if (std::exchange(first, false) || !NamesLength(line.substr(0, line.find(':')))) continue;
    ++lengths;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(parts.back());
    uint64_t length = 0;
    if (absl::EqualsIgnoreCase(parts[0], "content-length")) {
      if (!absl::SimpleAtoi(value, &length) || !absl::ascii_isdigit(value[0])) return false;
    } else if (absl::EqualsIgnoreCase(parts[0], "transfer-encoding")) {
      if (!absl::EqualsIgnoreCase(value, "chunked")) return false;
    } else if (!std::all_of(parts[0].begin(), parts[0].end(), [](char c) {
                 return absl::ascii_isalnum(c) || absl::StrContains("!#$%&'*+-.^_`|~", c);
               })) {
      return false;  // not another header's name either
    } else {
      --lengths;
    }
  }
  return lengths <= 1;
}

}  // namespace

std::string FuzzHttp(absl::string_view input) {
  const Requests whole = ReadRequests(input, input.size() + 1);
  for (const absl::string_view head : whole.heads)
    if (!IsPlain(head)) return absl::StrCat("it was read, with lengths that leave a doubt: ", head);
  for (const size_t piece_bytes : {1, 7, 100}) {
    const Requests pieces = ReadRequests(input, piece_bytes);
    // A head in pieces may be refused only when its end has come.
    if (pieces.read != whole.read || (pieces.refused && !whole.refused))
      return absl::StrCat("in pieces of ", piece_bytes,
                          " it reads differently: ", pieces.read.size(), " requests, refused ",
                          pieces.refused, "; ", whole.read.size(), " and ", whole.refused,
                          " at once");
    if (pieces.held_bytes_max > kHttpHeadBytesMax + piece_bytes)
      return absl::StrCat("it holds ", pieces.held_bytes_max, " bytes");
  }
  return "";
}

}  // namespace warpcall::testing
