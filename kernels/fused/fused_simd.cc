// Blocks of rows, or of a row's columns, that stay in cache from their first operation to their
// last: inputs are read and the output is written once. Where rows are reduced and too long to be
// kept, they are read once for each pass.
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

using expression::Keeping;
using expression::Pass;
using expression::Schedule;

// Floats of all places together: 128 KiB, half of a small second-level cache.
constexpr int64_t kCacheFloats = 32 * 1024;
// Rows up to this many floats in all places are kept, at most in a slower cache: 512 KiB.
constexpr int64_t kKeptFloatsMax = 128 * 1024;
constexpr int64_t kRowsMax = 1024;
constexpr int64_t kColumnsMin = 256;  // keeps a step's fixed cost at some percent
// Elements that pay for waking a thread; a step takes about 1/4 ns for one.
constexpr int64_t kElementsPerGrain = 64 * 1024;

struct Shape {
  Program program;
  Keeping keeping = Keeping::kRow;
  Schedule schedule = {};
  Places places = {};
  bool reduces = false;
  int64_t block_rows = 1;
  int64_t block_columns = 1;

  int64_t RowBlocks() const { return CeilDivide(program.layout.rows, block_rows); }
  // Blocks of a row that are worked on by themselves.
  int64_t ColumnBlocks() const {
    return reduces ? 1 : CeilDivide(program.layout.columns, block_columns);
  }
};

Shape ShapeFor(Program program) {
  Shape shape = {.program = std::move(program)};
  shape.reduces = shape.program.graph.HasReductions();
  const auto plan = [&](Keeping keeping) {
    shape.keeping = keeping;
    shape.schedule = ScheduleOf(shape.program.graph, shape.program.layout, keeping);
    shape.places = PlacesOf(shape.program, shape.schedule, keeping);
  };
  plan(Keeping::kRow);
  const auto places = [&] { return std::max<int64_t>(1, shape.places.count); };
  const int64_t columns = shape.program.layout.columns;
  if (shape.reduces && SaturatingMultiply(columns, places()) > kKeptFloatsMax)
    plan(Keeping::kNothing);
  const bool whole_rows = shape.reduces && shape.keeping == Keeping::kRow;
  const int64_t fits = std::max(kColumnsMin, kCacheFloats / places() / 64 * 64);
  shape.block_columns = whole_rows ? columns : std::min(columns, fits);
  shape.block_rows = shape.block_columns < columns
                         ? 1
                         : std::clamp<int64_t>(fits / std::max<int64_t>(1, columns), 1, kRowsMax);
  shape.block_rows = std::min(shape.block_rows, std::max<int64_t>(1, shape.program.layout.rows));
  return shape;
}

// One thread's work: its memory, and one block after the other.
class Worker {
 public:
  Worker(const Shape& shape, const Operands& operands, DataType data_type, const StopFlag* stop)
      : shape_(shape),
        stop_(stop),
        nodes_(static_cast<int64_t>(shape.program.graph.nodes.size())),
        wide_(Allocate(shape.places.count * BlockElements())),
        narrow_(Allocate(nodes_ * shape.block_rows)),
        frame_{.program = shape.program,
               .operands = operands,
               .data_type = data_type,
               .arrays = {.wide = wide_.get(),
                          .place_stride = BlockElements(),
                          .row_stride = shape.block_columns,
                          .narrow = narrow_.get(),
                          .narrow_stride = shape.block_rows}} {}

  void Run(int64_t block) {
    const expression::Layout& layout = shape_.program.layout;
    const int64_t row = block / shape_.ColumnBlocks() * shape_.block_rows;
    const int64_t column = block % shape_.ColumnBlocks() * shape_.block_columns;
    const Tile rows = {.row = row,
                       .rows = std::min(shape_.block_rows, layout.rows - row),
                       .column = column,
                       .columns = shape_.reduces
                                      ? layout.columns
                                      : std::min(shape_.block_columns, layout.columns - column)};
    frame_.arrays.first_row = row;
    const std::vector<Pass>& passes = shape_.schedule.passes;
    for (size_t i = 0; i < passes.size(); ++i) {
      frame_.places = shape_.places.of_pass[i];
      if (!RunPass(passes[i], rows, i + 1 == passes.size())) return;
    }
  }

 private:
  // Not set to anything: a block's values are written before they are read.
  static std::unique_ptr<float[]> Allocate(int64_t count) {
    return std::unique_ptr<float[]>(new float[static_cast<size_t>(count)]);
  }
  int64_t BlockElements() const { return shape_.block_rows * shape_.block_columns; }

  // False when the stop flag was set.
  bool RunPass(const Pass& pass, const Tile& rows, bool last) {
    frame_.arrays.first_column = rows.column;
    for (const int node : pass.narrow) RunStep(frame_, node, rows);
    partials_.clear();
    for (const int node : pass.reductions)
      partials_.insert(partials_.end(), static_cast<size_t>(rows.rows),
                       EmptyPartial(shape_.program.graph.nodes[static_cast<size_t>(node)].op));
    for (int64_t at = 0; at < rows.columns; at += shape_.block_columns) {
      if (at > 0 && IsSet(stop_)) return false;
      Tile tile = rows;
      tile.column = rows.column + at;
      tile.columns = std::min(shape_.block_columns, rows.columns - at);
      frame_.arrays.first_column = tile.column;
      for (const int node : pass.wide) RunStep(frame_, node, tile);
      for (size_t i = 0; i < pass.reductions.size(); ++i)
        Reduce(frame_, pass.reductions[i], tile, PartialsOf(i, rows));
      if (last) StoreResult(frame_, tile);
    }
    for (size_t i = 0; i < pass.reductions.size(); ++i)
      FinishReduction(frame_, pass.reductions[i], rows, PartialsOf(i, rows));
    return true;
  }

  double* PartialsOf(size_t reduction, const Tile& rows) {
    return partials_.data() + reduction * static_cast<size_t>(rows.rows);
  }

  const Shape& shape_;
  const StopFlag* const stop_;
  const int64_t nodes_;
  const std::unique_ptr<float[]> wide_;
  const std::unique_ptr<float[]> narrow_;
  std::vector<double> partials_;
  Frame frame_;
};

absl::StatusOr<PlanPtr> MakeBlocksPlan(const Problem& problem, const PlanContext&) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  auto shape = std::make_shared<const Shape>(ShapeFor(ProgramOf(problem)));
  return NewPlan({}, [shape, type = problem.outputs[0].data_type](const Operands& operands,
                                                                  const LaunchContext& launch) {
    const expression::Layout& layout = shape->program.layout;
    const int64_t elements = shape->block_rows *
                             (shape->reduces ? layout.columns : shape->block_columns) *
                             static_cast<int64_t>(shape->program.graph.nodes.size());
    const int64_t grain = std::max<int64_t>(1, kElementsPerGrain / elements);
    const int64_t blocks = shape->RowBlocks() * shape->ColumnBlocks();
    cpu::WorkersOf(launch).ParallelFor(blocks, grain, [&](int64_t begin, int64_t end) {
      Worker worker(*shape, operands, type, launch.stop);
      for (int64_t block = begin; block < end; ++block) worker.Run(block);
    });
    return absl::OkStatus();
  });
}

}  // namespace

Implementation BlocksInCacheRow() {
  return {.name = "blocks_in_cache",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "blocks that stay in cache, vectorised for the CPU at hand, all threads",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = MakeBlocksPlan};
}

}  // namespace warpcall::fused
