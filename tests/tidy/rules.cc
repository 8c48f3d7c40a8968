#include "tests/tidy/rules.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/tidy/functions.h"
#include "tests/tidy/includes.h"

namespace warpcall::tidy {
namespace {

using absl::string_view;

void Append(std::vector<Finding> more, std::vector<Finding>* findings) {
  std::move(more.begin(), more.end(), std::back_inserter(*findings));
}

// Code points of UTF-8: every byte but the continuation bytes 10xxxxxx.
int Columns(string_view line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// "#if", "#ifdef", ... with what follows it; "" for other lines.
string_view Conditional(string_view code_line) {
  string_view line = absl::StripLeadingAsciiWhitespace(code_line);
  if (!absl::ConsumePrefix(&line, "#")) return "";
  line = absl::StripLeadingAsciiWhitespace(line);
  return absl::StartsWith(line, "if") || absl::StartsWith(line, "elif") ? line : "";
}

// Whether what was named is called, perhaps with template arguments: it is not part of a longer
// name.
bool CallFollows(string_view after_name) {
  return absl::StartsWith(after_name, "(") || absl::StartsWith(after_name, "<");
}

bool HasReason(string_view after_word) {
  if (!absl::ConsumePrefix(&after_word, "(")) return false;
  const size_t close = after_word.find("):");
  return close != string_view::npos && close > 0 &&
         !absl::StripAsciiWhitespace(after_word.substr(close + 2)).empty();
}

string_view ParentOf(string_view path) {
  const size_t slash = path.rfind('/');
  return slash == string_view::npos ? "" : path.substr(0, slash);
}

using Words = absl::flat_hash_set<std::string>;

std::vector<string_view> SplitCMake(string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\n()\""), absl::SkipEmpty());
}

// Adds what each word with the variable of a foreach(variable value...) becomes.
void ExpandLoops(string_view text, Words* words) {
  constexpr string_view kLoop = "foreach(";
  const std::vector<string_view> all = SplitCMake(text);
  for (size_t at = text.find(kLoop); at != string_view::npos; at = text.find(kLoop, at + 1)) {
    const size_t begin = at + kLoop.size();
    const std::vector<string_view> loop =
        SplitCMake(text.substr(begin, text.find(')', at) - begin));
    if (loop.empty()) continue;  // endforeach()
    const std::string variable = absl::StrCat("${", loop[0], "}");
    for (string_view word : all) {
      if (!absl::StrContains(word, variable)) continue;
      for (size_t i = 1; i < loop.size(); ++i) {
        words->insert(absl::StrReplaceAll(word, {{variable, loop[i]}}));
      }
    }
  }
}

// What a CMakeLists.txt names outside its comments.
Words CMakeWords(string_view text_with_comments) {
  std::string text;
  for (string_view line : absl::StrSplit(text_with_comments, '\n')) {
    absl::StrAppend(&text, line.substr(0, line.find('#')), "\n");
  }
  Words words;
  for (string_view word : SplitCMake(text)) words.insert(std::string(word));
  ExpandLoops(text, &words);
  return words;
}

}  // namespace

std::vector<Finding> CheckSize(const Source& source) {
  std::vector<Finding> findings;
  const std::vector<string_view> lines = source.TextLines();
  const int lines_max = source.path == "CMakeLists.txt" ? kRootCMakeLinesMax : kFileLinesMax;
  if (static_cast<int>(lines.size()) > lines_max) {
    findings.push_back(
        {source.path, lines_max + 1,
         absl::StrCat("the file has ", lines.size(), " lines; the limit is ", lines_max)});
  }
  for (size_t i = 0; IsCpp(source.path) && i < lines.size(); ++i) {
    const bool exempt =
        absl::StrContains(lines[i], "://") || absl::StartsWith(lines[i], "#include");
    if (Columns(lines[i]) <= kColumnsMax || exempt) continue;
    findings.push_back(
        {source.path, static_cast<int>(i) + 1,
         absl::StrCat("the line has ", Columns(lines[i]), " columns; the limit is ", kColumnsMax)});
  }
  return findings;
}

std::vector<Finding> CheckIncludeGuard(const Source& source) {
  if (!IsHeader(source.path)) return {};
  const bool per_target = absl::EndsWith(source.path, "-inl.h");
  for (string_view line : source.CodeLines()) {
    const bool found = per_target ? absl::StrContains(Conditional(line), "HWY_TARGET_TOGGLE")
                                  : absl::StripAsciiWhitespace(line) == "#pragma once";
    if (found) return {};
  }
  return {{source.path, 1,
           per_target ? "the header has no guard by HWY_TARGET_TOGGLE"
                      : "the header has no #pragma once"}};
}

std::vector<Finding> CheckConditionals(const Source& source) {
  std::vector<Finding> findings;
  if (!absl::StartsWith(source.path, "server/")) return findings;
  const std::vector<string_view> lines = source.CodeLines();
  for (size_t i = 0; i < lines.size(); ++i) {
    const string_view condition = Conditional(lines[i]);
    if (absl::StrContains(absl::AsciiStrToLower(condition), "cuda") ||
        absl::StrContains(condition, "__NVCC__")) {
      findings.push_back({source.path, static_cast<int>(i) + 1,
                          "#if about CUDA under server/: choose by file, as devices_cpu.cc and "
                          "devices_cuda.cc do"});
    }
  }
  return findings;
}

std::vector<Finding> CheckCopies(const Source& source) {
  constexpr string_view kFolders[] = {"server/engine/", "server/transport/", "server/worker/"};
  constexpr string_view kPlace = "server/engine/host_copy.h";
  constexpr string_view kCopies[] = {"memcpy", "memmove",          "mempcpy", "bcopy",
                                     "copy_n", "std::copy",        "CopyTo",  "DumpToSingleSlice",
                                     "c_copy", "std::ranges::copy"};
  std::vector<Finding> findings;
  const bool inside =
      std::any_of(std::begin(kFolders), std::end(kFolders),
                  [&](string_view folder) { return absl::StartsWith(source.path, folder); });
  if (!inside || source.path == kPlace) return findings;
  const std::vector<string_view> lines = source.CodeLines();
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const string_view copy : kCopies) {
      const size_t at = lines[i].find(copy);
      if (at == string_view::npos || !CallFollows(lines[i].substr(at + copy.size()))) continue;
      findings.push_back({source.path, static_cast<int>(i) + 1,
                          absl::StrCat(copy, " where tensors pass through: CopyOnHost (", kPlace,
                                       ") copies, and counts")});
      break;
    }
  }
  return findings;
}

std::vector<Finding> CheckNotes(const Source& source) {
  std::vector<Finding> findings;
  const std::vector<string_view> lines = source.TextLines();
  for (size_t i = 0; i < lines.size(); ++i) {
    // Spelt in two parts so that this file passes its own check.
    for (string_view word : {"TO"
                             "DO",
                             "FIX"
                             "ME"}) {
      const size_t at = lines[i].find(word);
      if (at == string_view::npos || HasReason(lines[i].substr(at + word.size()))) continue;
      findings.push_back({source.path, static_cast<int>(i) + 1,
                          absl::StrCat(word, " without a reason; write ", word,
                                       "(who or which issue): what it waits for")});
    }
  }
  return findings;
}

std::vector<Finding> CheckListed(absl::Span<const Source> sources) {
  absl::flat_hash_map<string_view, Words> words_by_folder;
  for (const Source& source : sources) {
    const string_view path = source.path;
    if (path == "CMakeLists.txt" || absl::EndsWith(path, "/CMakeLists.txt")) {
      words_by_folder[ParentOf(path)] = CMakeWords(source.text);
    }
  }
  std::vector<Finding> findings;
  for (const Source& source : sources) {
    string_view folder = source.path;
    if (!IsCpp(folder) || IsHeader(folder)) continue;
    bool listed = false;
    while (!listed && !folder.empty()) {
      folder = ParentOf(folder);
      string_view name = source.path;
      name.remove_prefix(folder.empty() ? 0 : folder.size() + 1);
      const auto words = words_by_folder.find(folder);
      listed = words != words_by_folder.end() && words->second.contains(name);
    }
    if (!listed) {
      findings.push_back(
          {source.path, 0, "no CMakeLists.txt in its folder or above names it: it is not built"});
    }
  }
  return findings;
}

std::vector<Finding> CheckAll(absl::Span<const Source> sources) {
  std::vector<Finding> findings;
  for (const Source& source : sources) {
    Append(CheckSize(source), &findings);
    Append(CheckNotes(source), &findings);
    if (!IsCpp(source.path)) continue;
    Append(CheckIncludeGuard(source), &findings);
    Append(CheckConditionals(source), &findings);
    Append(CheckCopies(source), &findings);
    Append(CheckFunctions(source), &findings);
    Append(CheckIncludes(source), &findings);
  }
  Append(CheckListed(sources), &findings);
  return findings;
}

}  // namespace warpcall::tidy
