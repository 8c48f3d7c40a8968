// Finds function definitions by braces and parentheses. No parser: what it takes for a function at
// namespace or class scope is described at ScanFunctions, and lambdas and local classes count as
// part of the function around them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/tidy/source.h"

namespace warpcall::tidy {

struct Function {
  std::string name;  // as written before its parameters, "Lane::Run"
  int line = 0;      // where its signature begins, from 1
  int lines = 0;     // signature to closing brace, both included
  int parameters = 0;
};

// A function is a brace at namespace or class scope that follows parameters: neither the body of a
// namespace, class or enum nor an initialiser. `code` is what BlankCommentsAndLiterals returned.
std::vector<Function> ScanFunctions(absl::string_view code);

inline constexpr int kFunctionLinesMax = 70;
inline constexpr int kFunctionParametersMax = 4;

std::vector<Finding> CheckFunctions(const Source& source);

}  // namespace warpcall::tidy
