// Runs a program as steps over float32 arrays, one step for each node, on the CPU: block by block
// in cache, or each step over all of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/expression/schedule.h"
#include "kernels/fused/fused.h"

namespace warpcall::fused {

// Places of wide nodes' values in each pass. A place is used again once its node is no longer
// needed, and a step may write its result over an operand.
struct Places {
  std::vector<std::vector<int>> of_pass;  // place by pass and node; -1: none
  int count = 0;
};

Places PlacesOf(const Program& program, const expression::Schedule& schedule,
                expression::Keeping keeping);

// Rows and columns of the layout.
struct Tile {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

// Arrays of values: rows of columns for each place, and one value a row for each narrow node.
struct Arrays {
  float* wide = nullptr;
  int64_t place_stride = 0;
  int64_t row_stride = 0;
  float* narrow = nullptr;
  int64_t narrow_stride = 0;
  int64_t first_row = 0;
  int64_t first_column = 0;

  float* WideAt(int place, const Tile& tile) const {
    return wide + place * place_stride + (tile.row - first_row) * row_stride + tile.column -
           first_column;
  }
  float* NarrowAt(int node, int64_t row) const {
    return narrow + node * narrow_stride + row - first_row;
  }
};

// The operands and arrays of a step.
struct Frame {
  const Program& program;
  const Operands& operands;
  DataType data_type;
  Arrays arrays;
  absl::Span<const int> places = {};  // places of the pass
};

// Computes `node` for the tile; of narrow nodes, one value for each of its rows.
void RunStep(const Frame& frame, int node, const Tile& tile);

// Takes the tile's columns of each row into partials[row - tile.row]: sums in float64, the greatest
// or the least.
void Reduce(const Frame& frame, int node, const Tile& tile, double* partials);
double EmptyPartial(expression::Operator op);
// Rounds them to the values of the node. REQUIRES: Reduce took all columns of the rows.
void FinishReduction(const Frame& frame, int node, const Tile& tile, const double* partials);

// Rounds the result to the output.
void StoreResult(const Frame& frame, const Tile& tile);

}  // namespace warpcall::fused
