// Lays out a graph's inputs for each element of its output, in as few loops as possible: rows of
// columns, and the strides from row to row.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/expression/graph.h"
#include "kernels/op.h"

namespace warpcall::expression {

// NumPy's broadcasting of all shapes. INVALID_ARGUMENT names the inputs and the dimension where two
// do not fit.
absl::StatusOr<Dims> Broadcast(absl::Span<const TensorSpec> inputs);

// A tensor in the output's loops: an input, or what dropout counts elements in.
struct Walk {
  // Elements from one index to the next: one for each of Layout::outer, 0 where all are the same.
  std::vector<int64_t> strides;
  bool wide = false;  // elements of a row are neighbours; otherwise they are one

  // The first element of row `row` of the layout.
  int64_t RowOffset(absl::Span<const int64_t> outer, int64_t row) const;
};

struct Layout {
  // Dimensions before the last; their product is `rows`. Neighbours that every tensor walks through
  // alike are one. The last dimension is the output's own when there are reductions.
  std::vector<int64_t> outer;
  int64_t rows = 1;
  int64_t columns = 1;
  std::vector<Walk> inputs;
  std::vector<Walk> dropouts;  // one per node; empty for nodes other than kDropout
  // One per node: true if it has an element for each column, false if it has one for the row.
  std::vector<bool> wide;
  // One per node: the number of its elements in all.
  std::vector<int64_t> elements;
};

// REQUIRES: the inputs can be broadcast, and are as many as the graph's.
Layout LayoutOf(const Graph& graph, absl::Span<const TensorSpec> inputs);

}  // namespace warpcall::expression
