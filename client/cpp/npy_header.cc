#include "client/cpp/npy_header.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// NumPy's own limit.
constexpr size_t kRankMax = 64;

class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : rest_(text) {}

  absl::StatusOr<NpyHeader> Parse() {
    NpyHeader header;
    RETURN_IF_ERROR(Expect('{'));
    while (!Take('}')) {
      RETURN_IF_ERROR(ParseEntry(&header));
      if (!Take(',')) {
        RETURN_IF_ERROR(Expect('}'));
        break;
      }
    }
    SkipSpace();
    if (!rest_.empty()) return Bad("text after the dictionary");
    if (!seen_descr_ || !seen_order_ || !seen_shape_)
      return Bad("descr, fortran_order and shape must all be there");
    return header;
  }

 private:
  absl::Status ParseEntry(NpyHeader* header) {
    ASSIGN_OR_RETURN(const std::string key, ParseString());
    RETURN_IF_ERROR(Expect(':'));
    bool* seen = key == "descr"           ? &seen_descr_
                 : key == "fortran_order" ? &seen_order_
                 : key == "shape"         ? &seen_shape_
                                          : nullptr;
    if (seen == nullptr) return Bad(absl::StrCat("unknown key '", key, "'"));
    if (*seen) return Bad(absl::StrCat("key '", key, "' twice"));
    *seen = true;
    if (key == "descr") return ParseDescr(&header->descr);
    if (key == "shape") return ParseShape(&header->shape);
    return ParseBool(&header->fortran_order);
  }

  absl::Status ParseDescr(std::string* descr) {
    SkipSpace();
    if (!rest_.empty() && rest_.front() == '[')
      return Bad("structured arrays (descr is a list of fields) are not taken");
    ASSIGN_OR_RETURN(*descr, ParseString());
    return absl::OkStatus();
  }

  absl::Status ParseBool(bool* value) {
    SkipSpace();
    for (const bool candidate : {false, true}) {
      const absl::string_view word = candidate ? "True" : "False";
      if (rest_.substr(0, word.size()) != word) continue;
      rest_.remove_prefix(word.size());
      *value = candidate;
      return absl::OkStatus();
    }
    return Bad("fortran_order is neither True nor False");
  }

  absl::Status ParseShape(std::vector<int64_t>* shape) {
    RETURN_IF_ERROR(Expect('('));
    while (!Take(')')) {
      SkipSpace();
      size_t digits = 0;
      while (digits < rest_.size() && absl::ascii_isdigit(rest_[digits])) ++digits;
      int64_t dimension;
      if (!absl::SimpleAtoi(rest_.substr(0, digits), &dimension))
        return Bad("shape is not a tuple of integers from 0 to 2^63 - 1");
      rest_.remove_prefix(digits);
      absl::ConsumePrefix(&rest_, "L");  // Python 2 wrote its long integers so
      shape->push_back(dimension);
      if (shape->size() > kRankMax) return Bad(absl::StrCat("more than ", kRankMax, " dimensions"));
      if (!Take(',')) {
        if (shape->size() == 1) return Bad("shape is a number in brackets, not a tuple");
        return Expect(')');
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ParseString() {
    SkipSpace();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"'))
      return Bad("a quoted string was expected");
    const size_t end = rest_.find(rest_.front(), 1);
    if (end == absl::string_view::npos) return Bad("a string does not end");
    std::string value(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return value;
  }

  void SkipSpace() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  bool Take(char symbol) {
    SkipSpace();
    if (rest_.empty() || rest_.front() != symbol) return false;
    rest_.remove_prefix(1);
    return true;
  }

  absl::Status Expect(char symbol) {
    if (Take(symbol)) return absl::OkStatus();
    return Bad(absl::StrCat("'", std::string(1, symbol), "' was expected"));
  }

  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("malformed .npy header: ", what));
  }

  absl::string_view rest_;
  bool seen_descr_ = false;
  bool seen_order_ = false;
  bool seen_shape_ = false;
};

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text) {
  return HeaderParser(text).Parse();
}

}  // namespace warpcall::client
