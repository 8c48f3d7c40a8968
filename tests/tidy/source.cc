#include "tests/tidy/source.h"

#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall::tidy {
namespace {

bool IsWordCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// The letters and digits that end just before `position`: a literal's prefix, or a number.
absl::string_view WordBefore(absl::string_view text, size_t position) {
  size_t begin = position;
  while (begin > 0 && (IsWordCharacter(text[begin - 1]) || text[begin - 1] == '\'')) --begin;
  return text.substr(begin, position - begin);
}

// Each of these takes the position of an opening and returns that of what follows the closing.
size_t EndOfRawString(absl::string_view text, size_t quote) {
  const size_t open = text.find('(', quote);
  if (open == absl::string_view::npos) return text.size();
  const std::string close = absl::StrCat(")", text.substr(quote + 1, open - quote - 1), "\"");
  const size_t end = text.find(close, open);
  return end == absl::string_view::npos ? text.size() : end + close.size();
}

size_t EndOfLiteral(absl::string_view text, size_t quote) {
  for (size_t i = quote + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[quote] || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

size_t EndOfComment(absl::string_view text, size_t slash) {
  const bool block = text[slash + 1] == '*';
  const size_t end = text.find(block ? "*/" : "\n", slash + 2);
  if (end == absl::string_view::npos) return text.size();
  return block ? end + 2 : end;
}

void Blank(std::string* text, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if ((*text)[i] != '\n') (*text)[i] = ' ';
  }
}

std::vector<absl::string_view> Lines(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

std::string ToString(const Finding& finding) {
  return absl::StrCat(finding.path, ":", finding.line, ": ", finding.message);
}

std::vector<absl::string_view> Source::TextLines() const { return Lines(text); }
std::vector<absl::string_view> Source::CodeLines() const { return Lines(code); }

Source MakeSource(std::string path, std::string text) {
  Source source{std::move(path), std::move(text), ""};
  if (IsCpp(source.path)) source.code = BlankCommentsAndLiterals(source.text);
  return source;
}

bool IsHeader(absl::string_view path) {
  return absl::EndsWith(path, ".h") || absl::EndsWith(path, ".cuh");
}

bool IsCpp(absl::string_view path) {
  return IsHeader(path) || absl::EndsWith(path, ".cc") || absl::EndsWith(path, ".cu");
}

bool IsSource(absl::string_view path) {
  return IsCpp(path) || absl::EndsWith(path, ".py") || absl::EndsWith(path, ".sh") ||
         absl::EndsWith(path, ".proto") || absl::EndsWith(path, ".cmake") ||
         absl::EndsWith(path, "CMakeLists.txt");
}

std::string BlankCommentsAndLiterals(absl::string_view text) {
  std::string code(text);
  for (size_t i = 0; i < text.size();) {
    const absl::string_view rest = text.substr(i);
    if (absl::StartsWith(rest, "//") || absl::StartsWith(rest, "/*")) {
      const size_t end = EndOfComment(text, i);
      Blank(&code, i, end);
      i = end;
      continue;
    }
    if (text[i] != '"' && text[i] != '\'') {
      ++i;
      continue;
    }
    const absl::string_view word = WordBefore(text, i);
    if (text[i] == '\'' && !word.empty() && absl::ascii_isdigit(word[0])) {
      ++i;  // a digit separator
      continue;
    }
    const bool raw = text[i] == '"' &&
                     (word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R");
    const size_t end = raw ? EndOfRawString(text, i) : EndOfLiteral(text, i);
    if (end > i + 1) Blank(&code, i + 1, end - 1);
    i = end;
  }
  return code;
}

std::string BlankDirectives(absl::string_view code) {
  std::string blanked(code);
  bool directive = false;
  size_t begin = 0;
  while (begin < code.size()) {
    size_t end = code.find('\n', begin);
    if (end == absl::string_view::npos) end = code.size();
    const absl::string_view line = code.substr(begin, end - begin);
    directive = directive || absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "#");
    if (directive) Blank(&blanked, begin, end);
    directive = directive && absl::EndsWith(line, "\\");
    begin = end + 1;
  }
  return blanked;
}

}  // namespace warpcall::tidy
