// A source file as the rules see it: its text, and the same text with comments and literals
// blanked.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace warpcall::tidy {

struct Finding {
  std::string path;  // relative to the repository's root
  int line = 0;      // from 1; 0 when the file as a whole is meant
  std::string message;

  bool operator==(const Finding&) const = default;
};

// "path:line: message"
std::string ToString(const Finding& finding);

struct Source {
  std::string path;  // relative to the repository's root, with forward slashes
  std::string text;
  std::string code;  // as long as text: see BlankCommentsAndLiterals; empty unless IsCpp(path)

  // Without their newlines; views into this object.
  std::vector<absl::string_view> TextLines() const;
  std::vector<absl::string_view> CodeLines() const;
};

Source MakeSource(std::string path, std::string text);

// .cc, .h, .cu, .cuh
bool IsCpp(absl::string_view path);
// .h, .cuh
bool IsHeader(absl::string_view path);
// Sources in any language: C++, Python, shell, proto, CMake.
bool IsSource(absl::string_view path);

// Replaces what is inside comments and string and character literals with blanks, delimiters of
// comments included. Newlines stay, so positions and line numbers are those of `text`.
std::string BlankCommentsAndLiterals(absl::string_view text);

// Blanks preprocessor directives, continued lines included.
std::string BlankDirectives(absl::string_view code);

}  // namespace warpcall::tidy
