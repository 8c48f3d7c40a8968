// The truth: the definition in float64, row by row, rounded once.
#include <algorithm>
#include <type_traits>

#include "kernels/common/saturate.h"
#include "kernels/cpu/definition_row.h"
#include "kernels/expression/arithmetic.h"
#include "kernels/expression/mask.h"
#include "kernels/expression/schedule.h"
#include "kernels/fused/fused.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::fused {
namespace {

using expression::Bounded;
using expression::IsReduction;
using expression::Keeping;
using expression::Node;
using expression::Operator;
using expression::Pass;
using expression::Reduction;
using expression::Walk;

constexpr int64_t kPieceColumns = 128;
constexpr int64_t kSliceElements = 1024;

// Cuts the output into slices: some short rows, or a piece of one row if no reduction needs the
// whole row.
struct Slicing {
  int64_t rows = 1;     // per slice; the last slice may have fewer
  int64_t columns = 1;  // per slice; the last slice of a row may have fewer
  int64_t per_row = 1;  // slices of a row

  explicit Slicing(const Program& program) : columns(program.layout.columns) {
    if (columns <= kSliceElements) {
      rows = std::max<int64_t>(1, kSliceElements / std::max<int64_t>(1, columns));
    } else if (!program.graph.HasReductions()) {
      per_row = CeilDivide(columns, kSliceElements);
      columns = kSliceElements;
    }
  }
};

int64_t Slices(const Problem& problem) {
  if (problem.outputs[0].elements() == 0) return 0;
  const Program program = ProgramOf(problem);
  const Slicing slicing(program);
  return slicing.per_row * CeilDivide(program.layout.rows, slicing.rows);
}

// Rows and columns of a slice.
struct Part {
  int64_t first_row, rows, first_column, columns;
};

Part PartOf(const Program& program, int64_t index) {
  const Slicing slicing(program);
  WARPCALL_DCHECK(index >= 0 && index / slicing.per_row * slicing.rows < program.layout.rows, index,
                  program.layout.rows);
  const int64_t row = index / slicing.per_row * slicing.rows;
  const int64_t column = index % slicing.per_row * slicing.columns;
  return {.first_row = row,
          .rows = std::min(slicing.rows, program.layout.rows - row),
          .first_column = column,
          .columns = std::min(slicing.columns, program.layout.columns - column)};
}

Slice SliceOf(const Problem& problem, int64_t index) {
  WARPCALL_DCHECK(index >= 0 && index < Slices(problem), index, Slices(problem));
  const Program program = ProgramOf(problem);
  const Part part = PartOf(program, index);
  return {.first = part.first_row * program.layout.columns + part.first_column,
          .stride = 1,
          .count = part.rows * part.columns};
}

void Load(const void* x, DataType type, int64_t element, double* value) {
  DispatchDataType(type,
                   [&]<typename T>(T) { *value = ToFloat(static_cast<const T*>(x)[element]); });
}

void Load(const void* x, DataType type, int64_t element, Bounded* value) {
  Load(x, type, element, &value->value);
  value->error = 0;
}

// Returns the walk that counts the elements of an input or a dropout; null for other nodes.
const Walk* WalkOfNode(const Program& program, size_t node) {
  const Node& found = program.graph.nodes[node];
  if (found.op == Operator::kInput) return &program.layout.inputs[static_cast<size_t>(found.index)];
  return found.op == Operator::kDropout ? &program.layout.dropouts[node] : nullptr;
}

// One row after the other. Value is double, or Bounded for errors as well.
template <typename Value>
class Evaluator {
 public:
  Evaluator(const Problem& problem, const Operands& inputs, const Program& program)
      : type_(problem.inputs[0].data_type),
        inputs_(inputs),
        program_(program),
        schedule_(ScheduleOf(program.graph, program.layout, Keeping::kNothing)),
        first_(program.graph.nodes.size()),
        narrow_(program.graph.nodes.size()),
        wide_(program.graph.nodes.size()) {
    for (size_t i = 0; i < wide_.size(); ++i)
      if (program.layout.wide[i]) wide_[i].resize(kPieceColumns);
  }

  // take(values) for each piece of the part's rows; ends when stopped() becomes true.
  template <typename Take, typename Stopped>
  void Run(const Part& part, Take take, Stopped stopped) {
    for (int64_t row = part.first_row; row < part.first_row + part.rows; ++row)
      if (!RunRow(row, part, take, stopped)) return;
  }

 private:
  template <typename Take, typename Stopped>
  bool RunRow(int64_t row, const Part& part, Take take, Stopped stopped) {
    const int64_t columns = part.columns;
    SetRow(row);
    for (const Pass& pass : schedule_.passes) {
      const bool last = &pass == &schedule_.passes.back();
      for (const int node : pass.narrow) narrow_[Index(node)] = Narrow(node);
      std::vector<Reduction> reductions;
      for (const int node : pass.reductions) reductions.emplace_back(NodeOf(node).op);
      for (int64_t at = 0; at < columns; at += kPieceColumns) {
        if (stopped()) return false;
        const int64_t count = std::min(kPieceColumns, columns - at);
        for (const int node : pass.wide) FillWide(node, part.first_column + at, count);
        for (size_t i = 0; i < reductions.size(); ++i)
          for (int64_t j = 0; j < count; ++j)
            reductions[i].Take(wide_[Index(NodeOf(pass.reductions[i]).operands[0])][Column(j)]);
        if (last) take(Result(count));
      }
      for (size_t i = 0; i < reductions.size(); ++i)
        reductions[i].Get(columns, &narrow_[Index(pass.reductions[i])]);
    }
    return true;
  }

  void SetRow(int64_t row) {
    for (size_t i = 0; i < first_.size(); ++i)
      if (const Walk* const walk = WalkOfNode(program_, i); walk != nullptr)
        first_[i] = walk->RowOffset(program_.layout.outer, row);
  }

  static size_t Index(int node) { return static_cast<size_t>(node); }
  static size_t Column(int64_t column) { return static_cast<size_t>(column); }
  const Node& NodeOf(int node) const { return program_.graph.nodes[Index(node)]; }

  absl::Span<const Value> Result(int64_t count) {
    const size_t result = program_.graph.nodes.size() - 1;
    if (!program_.layout.wide[result])
      repeated_.assign(Column(count), narrow_[result]);
    else
      repeated_.assign(wide_[result].begin(), wide_[result].begin() + count);
    return repeated_;
  }

  // Returns the value of node `node` in the row, at `column` if the node has columns.
  Value At(int node, int64_t column, int64_t in_piece) const {
    const Node& found = NodeOf(node);
    if (found.op == Operator::kInput) {
      const bool wide = program_.layout.wide[Index(node)];
      Value value;
      Load(inputs_.inputs[Index(found.index)], type_, first_[Index(node)] + (wide ? column : 0),
           &value);
      return value;
    }
    Value operands[expression::kOperandsMax] = {};
    for (int i = 0; i < expression::OperandCount(found.op); ++i) {
      const size_t operand = Index(found.operands[i]);
      operands[i] =
          program_.layout.wide[operand] ? wide_[operand][Column(in_piece)] : narrow_[operand];
    }
    if (IsReduction(found.op)) return operands[0];  // a row of one element
    if (found.op == Operator::kDropout) {
      const expression::Mask mask(found.value, found.index, program_.seed);
      const int64_t place = first_[Index(node)] + (program_.layout.wide[Index(node)] ? column : 0);
      return expression::Drop(operands[0], mask.KeepsElement(place),
                              expression::ScaleOf(found.value));
    }
    if constexpr (std::is_same_v<Value, double>) {
      return expression::InRange(expression::Compute(found, operands));
    } else {
      return expression::Compute(found, operands);
    }
  }

  Value Narrow(int node) const { return At(node, 0, 0); }

  void FillWide(int node, int64_t first_column, int64_t count) {
    for (int64_t j = 0; j < count; ++j)
      wide_[Index(node)][Column(j)] = At(node, first_column + j, j);
  }

  const DataType type_;
  const Operands& inputs_;
  const Program& program_;
  const expression::Schedule schedule_;
  std::vector<int64_t> first_;  // by node with a walk: the row's first element
  std::vector<Value> narrow_;
  std::vector<std::vector<Value>> wide_;  // by wide node: one piece
  std::vector<Value> repeated_;
};

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const Program program = ProgramOf(problem);
  const Part part = PartOf(program, index);
  Evaluator<double> evaluator(problem, inputs, program);
  evaluator.Run(part, take, [&] { return take.Stopped(); });
}

}  // namespace

const Definition kDefinition = {.slices = Slices, .slice = SliceOf, .evaluate = Evaluate};

std::vector<double> ErrorsOf(const Problem& problem, const Operands& inputs, int64_t index) {
  const Program program = ProgramOf(problem);
  const Part part = PartOf(program, index);
  std::vector<double> errors;
  const auto take = [&](absl::Span<const Bounded> values) {
    for (const Bounded& value : values) errors.push_back(value.error);
  };
  Evaluator<Bounded> evaluator(problem, inputs, program);
  evaluator.Run(part, take, [] { return false; });
  return errors;
}

Implementation Float64Row() { return cpu::DefinitionRow(FusedOp()); }

}  // namespace warpcall::fused
