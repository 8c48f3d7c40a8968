#include "tests/tidy/functions.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace warpcall::tidy {
namespace {

using absl::string_view;

enum class Brace { kScope, kInitializer, kFunction };

struct ParameterList {
  string_view name;
  string_view parameters;  // between the parentheses
  string_view rest;        // what follows them
  bool found = false;
};

bool IsWordCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

bool IsOneOf(string_view word, std::initializer_list<string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Position after the bracket that closes the one at `open`.
size_t SkipBalanced(string_view code, size_t open) {
  const char opening = code[open];
  const char closing = opening == '{' ? '}' : opening == '(' ? ')' : opening == '[' ? ']' : '>';
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    if (code[i] == opening) ++depth;
    if (code[i] == closing && --depth == 0) return i + 1;
  }
  return code.size();
}

string_view WithoutTemplates(string_view header) {
  header = absl::StripLeadingAsciiWhitespace(header);
  while (absl::StartsWith(header, "template")) {
    const size_t angle = header.find('<');
    if (angle == string_view::npos) return header;
    header = absl::StripLeadingAsciiWhitespace(header.substr(SkipBalanced(header, angle)));
  }
  return header;
}

string_view FirstWord(string_view header) {
  const auto end = std::find_if_not(header.begin(), header.end(), IsWordCharacter);
  return header.substr(0, end - header.begin());
}

// The name that ends at `end`: words joined by ::, ~ and operators' signs.
string_view NameBefore(string_view header, size_t end) {
  while (end > 0 && absl::ascii_isspace(header[end - 1])) --end;
  const size_t word = header.rfind("operator", end);
  size_t begin = word != string_view::npos && header.find('(', word) >= end ? word : end;
  while (begin > 0 && (IsWordCharacter(header[begin - 1]) || header[begin - 1] == ':' ||
                       header[begin - 1] == '~')) {
    --begin;
  }
  return header.substr(begin, end - begin);
}

// The first parentheses that can hold parameters: not those of a specifier or an annotation.
ParameterList FindParameters(string_view header) {
  for (size_t i = 0; i < header.size(); ++i) {
    if (header[i] != '(') continue;
    const string_view name = NameBefore(header, i);
    const size_t end = SkipBalanced(header, i);
    const bool call_operator = absl::EndsWith(name, "operator");
    if (!call_operator && !absl::StartsWith(name, "ABSL_") &&
        !IsOneOf(name, {"alignas", "decltype", "__attribute__", "__launch_bounds__", "requires",
                        "noexcept", "explicit", "sizeof"})) {
      return {name, header.substr(i + 1, end - i - 2), header.substr(end), true};
    }
    i = call_operator ? header.find('(', end) - 1 : end - 1;
  }
  return {};
}

int CountParameters(string_view parameters) {
  parameters = absl::StripAsciiWhitespace(parameters);
  if (parameters.empty() || parameters == "void") return 0;
  int count = 1;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const char c = parameters[i];
    if (c == '(' || c == '{' || c == '[' || c == '<') i = SkipBalanced(parameters, i) - 1;
    if (c == ',') ++count;
  }
  return count;
}

// Position of the first = outside parentheses.
size_t FindAssignment(string_view header) {
  for (size_t i = 0; i < header.size(); ++i) {
    if (header[i] == '(') i = SkipBalanced(header, i) - 1;
    if (header[i] == '=') return i;
  }
  return string_view::npos;
}

// A constructor's `: member{...}`: the brace follows a name, while a body follows ) or }.
bool IsMemberInitializer(string_view after_parameters) {
  const string_view rest = absl::StripAsciiWhitespace(after_parameters);
  if (!absl::StartsWith(rest, ":") || rest.size() < 2) return false;
  return IsWordCharacter(rest.back()) || rest.back() == '>';
}

Brace Classify(string_view header) {
  header = absl::StripAsciiWhitespace(WithoutTemplates(header));
  const string_view first = FirstWord(header);
  if (first == "enum") return Brace::kInitializer;
  if (IsOneOf(first, {"namespace", "inline"}) && absl::StrContains(header, "namespace")) {
    return Brace::kScope;
  }
  if (IsOneOf(first, {"class", "struct", "union"})) return Brace::kScope;
  const ParameterList list = FindParameters(header);
  if (first == "extern" && !list.found) return Brace::kScope;
  const size_t equals = FindAssignment(header);
  if (equals != string_view::npos && !absl::StrContains(list.name, "operator")) {
    const string_view value = absl::StripLeadingAsciiWhitespace(header.substr(equals + 1));
    return absl::StartsWith(value, "[") ? Brace::kFunction : Brace::kInitializer;
  }
  return list.found && !IsMemberInitializer(list.rest) ? Brace::kFunction : Brace::kInitializer;
}

bool IsAccessSpecifier(string_view header) {
  return IsOneOf(absl::StripAsciiWhitespace(header), {"public", "protected", "private"});
}

Function MakeFunction(string_view code, size_t header, size_t brace, size_t end) {
  while (header < brace && absl::ascii_isspace(code[header])) ++header;
  const ParameterList list = FindParameters(WithoutTemplates(code.substr(header, brace - header)));
  Function function;
  function.name = std::string(list.name.empty() ? "(lambda)" : list.name);
  function.line = 1 + std::count(code.begin(), code.begin() + header, '\n');
  function.lines = 1 + std::count(code.begin() + header, code.begin() + end, '\n');
  function.parameters = CountParameters(list.parameters);
  return function;
}

}  // namespace

std::vector<Function> ScanFunctions(string_view code_with_directives) {
  const std::string blanked = BlankDirectives(code_with_directives);
  const string_view code = blanked;
  std::vector<Function> functions;
  size_t header = 0;  // where the declaration that is being read begins
  for (size_t i = 0; i < code.size();) {
    const char c = code[i];
    if (c == '(') {
      i = SkipBalanced(code, i);
      continue;
    }
    const bool access = c == ':' && IsAccessSpecifier(code.substr(header, i - header));
    const Brace brace = c == '{' ? Classify(code.substr(header, i - header)) : Brace::kScope;
    const size_t next = brace == Brace::kScope ? i + 1 : SkipBalanced(code, i);
    if (brace == Brace::kFunction) functions.push_back(MakeFunction(code, header, i, next));
    const bool ends = c == ';' || c == '}' || c == '{' || access;
    if (ends && brace != Brace::kInitializer) header = next;
    i = next;
  }
  return functions;
}

std::vector<Finding> CheckFunctions(const Source& source) {
  std::vector<Finding> findings;
  for (const Function& function : ScanFunctions(source.code)) {
    if (function.lines > kFunctionLinesMax) {
      findings.push_back({source.path, function.line,
                          absl::StrCat("function ", function.name, " has ", function.lines,
                                       " lines; the limit is ", kFunctionLinesMax)});
    }
    if (function.parameters > kFunctionParametersMax) {
      findings.push_back({source.path, function.line,
                          absl::StrCat("function ", function.name, " has ", function.parameters,
                                       " parameters; the limit is ", kFunctionParametersMax,
                                       ": group them in a struct")});
    }
  }
  return findings;
}

}  // namespace warpcall::tidy
