// The unfused chain: each operation of the expression is a pass of its own over float32 arrays in
// memory, as many as are needed at once; inputs are widened and the output is rounded by passes,
// too.
#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/fused_steps.h"
#include "kernels/plan.h"

namespace warpcall::fused {
namespace {

using expression::IsReduction;
using expression::Keeping;
using expression::Pass;
using expression::Schedule;

constexpr int64_t kGrain = 16 * 1024;  // elements: some 10 us of the cheapest pass
constexpr Keeping kKeeping = Keeping::kRow;

struct Chain {
  Program program;
  Schedule schedule;
  Places places;

  explicit Chain(const Problem& problem)
      : program(ProgramOf(problem)),
        schedule(ScheduleOf(program.graph, program.layout, kKeeping)),
        places(PlacesOf(program, schedule, kKeeping)) {}

  int64_t nodes() const { return static_cast<int64_t>(program.graph.nodes.size()); }
  int64_t elements() const { return program.layout.rows * program.layout.columns; }
  size_t WorkspaceBytes() const {
    const int64_t wide = SaturatingMultiply(elements(), places.count);
    const int64_t narrow = SaturatingMultiply(program.layout.rows, nodes());
    return SaturatingBytes(SaturatingAdd(wide, narrow), sizeof(float));
  }
};

// Calls body(tile) for pieces of the whole, in all threads.
template <typename Body>
void ForEachTile(const Chain& chain, const cpu::Workers& workers, bool whole_rows,
                 const Body& body) {
  const int64_t columns = chain.program.layout.columns;
  const int64_t rows = chain.program.layout.rows;
  const int64_t piece = whole_rows ? columns : std::min(columns, kGrain);
  const int64_t per_row = CeilDivide(columns, piece);
  const int64_t rows_at_once = per_row > 1 ? 1 : CeilDivide(kGrain, columns);
  workers.ParallelFor(rows * per_row, rows_at_once, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t row = at / per_row;
      const int64_t column = at % per_row * piece;
      const int64_t together = per_row > 1 ? 1 : std::min(rows_at_once, end - at);
      body(Tile{row, together, column, std::min(piece, columns - column)});
      at += together;
    }
  });
}

void ReduceRows(const Frame& frame, int node, const Tile& rows, const StopFlag* stop) {
  std::vector<double> partials(static_cast<size_t>(rows.rows));
  for (int64_t row = 0; row < rows.rows; ++row) {
    Tile tile = {rows.row + row, 1, 0, 0};
    double& partial = partials[static_cast<size_t>(row)];
    partial = EmptyPartial(frame.program.graph.nodes[static_cast<size_t>(node)].op);
    const bool done = cpu::ForRanges(rows.columns, stop, [&](int64_t begin, int64_t end) {
      tile.column = begin;
      tile.columns = end - begin;
      Reduce(frame, node, tile, &partial);
    });
    if (!done) return;
  }
  FinishReduction(frame, node, rows, partials.data());
}

void RunChain(const Chain& chain, const cpu::Workers& workers, Frame frame) {
  for (size_t i = 0; i < chain.schedule.passes.size(); ++i) {
    const Pass& pass = chain.schedule.passes[i];
    frame.places = chain.places.of_pass[i];
    for (const int node : pass.narrow)
      workers.ParallelFor(chain.program.layout.rows, kGrain, [&](int64_t begin, int64_t end) {
        RunStep(frame, node, {begin, end - begin, 0, chain.program.layout.columns});
      });
    for (const int node : pass.wide)
      ForEachTile(chain, workers, false, [&](const Tile& tile) { RunStep(frame, node, tile); });
    for (const int node : pass.reductions)
      ForEachTile(chain, workers, true,
                  [&](const Tile& rows) { ReduceRows(frame, node, rows, workers.stop()); });
    if (IsSet(workers.stop())) return;
  }
  ForEachTile(chain, workers, false, [&](const Tile& tile) { StoreResult(frame, tile); });
}

absl::StatusOr<PlanPtr> MakeChainPlan(const Problem& problem, const PlanContext&) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  auto chain = std::make_shared<const Chain>(problem);
  return NewPlan(
      {.workspace_bytes = chain->WorkspaceBytes()},
      [chain, type = problem.outputs[0].data_type](const Operands& operands,
                                                   const LaunchContext& launch) {
        auto* const wide = static_cast<float*>(launch.workspace);
        const int64_t elements = chain->elements();
        const Arrays arrays = {.wide = wide,
                               .place_stride = elements,
                               .row_stride = chain->program.layout.columns,
                               .narrow = wide + elements * chain->places.count,
                               .narrow_stride = chain->program.layout.rows};
        RunChain(*chain, cpu::WorkersOf(launch), {chain->program, operands, type, arrays});
        return absl::OkStatus();
      });
}

}  // namespace

Implementation ChainOfLoopsRow() {
  return {.name = "chain_of_loops",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCpu,
          .summary = "one operation of the expression per pass over memory",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = MakeChainPlan};
}

}  // namespace warpcall::fused
