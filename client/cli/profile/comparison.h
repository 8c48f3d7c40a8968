// Two implementations of one problem side by side, and what their times differ by.
#pragma once

#include <string>
#include <vector>

#include "client/cli/profile/figures.h"

namespace warpcall::cli {

struct ComparedFigure {
  std::string name;
  std::string first;   // for people
  std::string second;  // likewise
  double ratio = -1;   // the second's over the first's; -1: not known
};

struct Comparison {
  // Time of a run on the device, the second's over the first's; -1: unknown or inconclusive.
  double time_ratio = -1;
  std::vector<ComparedFigure> figures;  // those that at least one of the two has
  // Why one is slower, as sentences of the slower one; says so when nothing that was seen tells, or
  // when other work leaves it open which is.
  std::vector<std::string> reasons;
};

Comparison Compare(const Profiled& first, const Profiled& second);

}  // namespace warpcall::cli
