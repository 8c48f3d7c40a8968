// Orders the computation of a row: passes over its columns, with a reduction's result known after
// the pass that takes its elements.
#pragma once

#include <vector>

#include "kernels/expression/graph.h"
#include "kernels/expression/layout.h"

namespace warpcall::expression {

struct Pass {
  std::vector<int> narrow;      // nodes with one value for the row, computed before the columns are
  std::vector<int> wide;        // nodes with a value for each column
  std::vector<int> reductions;  // that take their operands' columns
};

struct Schedule {
  std::vector<Pass> passes;  // the last one yields the result
};

enum class Keeping : uint8_t {
  kNothing,  // wide nodes are computed again in each pass that needs them
  kRow,      // wide nodes are kept for later passes
};

// A reduction of what has one value for the row is that value: it stands among `narrow`.
Schedule ScheduleOf(const Graph& graph, const Layout& layout, Keeping keeping);

}  // namespace warpcall::expression
