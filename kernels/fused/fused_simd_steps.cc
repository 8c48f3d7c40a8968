// The steps of a program on vectors (Highway), compiled per instruction set and chosen at run time.
// Sums are in float64, so that neither order nor size matters much.
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/fused_simd_steps.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/fused/fused_simd_steps-inl.h"
#include "kernels/fused/fused_steps.h"
#include "proto/common/check.h"

#if HWY_ONCE
#include <cmath>
#include <limits>

namespace warpcall::fused {
namespace {

using expression::Operator;

HWY_EXPORT(RunStepOn);
HWY_EXPORT(ReduceOn);
HWY_EXPORT(StoreResultOn);

}  // namespace

void RunStep(const Frame& frame, int node, const Tile& tile) {
  WARPCALL_DCHECK(static_cast<size_t>(node) < frame.program.graph.nodes.size(), node);
  WARPCALL_DCHECK(tile.row >= frame.arrays.first_row, tile.row, frame.arrays.first_row);
  HWY_DYNAMIC_DISPATCH(RunStepOn)(frame, node, tile);
}

void Reduce(const Frame& frame, int node, const Tile& tile, double* partials) {
  WARPCALL_DCHECK(expression::IsReduction(frame.program.graph.nodes[static_cast<size_t>(node)].op),
                  node);
  HWY_DYNAMIC_DISPATCH(ReduceOn)(frame, node, tile, partials);
}

void StoreResult(const Frame& frame, const Tile& tile) {
  WARPCALL_DCHECK(tile.row >= 0 && tile.row + tile.rows <= frame.program.layout.rows, tile.row,
                  tile.rows, frame.program.layout.rows);
  WARPCALL_DCHECK(tile.column >= 0 && tile.column + tile.columns <= frame.program.layout.columns,
                  tile.column, tile.columns, frame.program.layout.columns);
  HWY_DYNAMIC_DISPATCH(StoreResultOn)(frame, tile);
}

double EmptyPartial(Operator op) {
  if (op == Operator::kRowMax) return -HUGE_VAL;
  return op == Operator::kRowMin ? HUGE_VAL : 0;
}

void FinishReduction(const Frame& frame, int node, const Tile& tile, const double* partials) {
  WARPCALL_DCHECK(tile.column == 0 && tile.columns == frame.program.layout.columns, tile.column,
                  tile.columns, frame.program.layout.columns);
  const Operator op = frame.program.graph.nodes[static_cast<size_t>(node)].op;
  const double divisor =
      op == Operator::kRowMean ? static_cast<double>(frame.program.layout.columns) : 1;
  float* const values = frame.arrays.NarrowAt(node, tile.row);
  for (int64_t row = 0; row < tile.rows; ++row)
    values[row] = static_cast<float>(partials[row] / divisor);
}

}  // namespace warpcall::fused
#endif  // HWY_ONCE
