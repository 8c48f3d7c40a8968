#include "kernels/expression/cuda_source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "kernels/common/saturate.h"
#include "kernels/expression/cuda_prelude.h"
#include "kernels/expression/mask.h"
#include "kernels/expression/schedule.h"
#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

using Form = CudaShape::Form;

constexpr int64_t kGridMax = std::numeric_limits<int32_t>::max();  // in x
// Words of 32 bits that a thread loads before it computes anything.
constexpr int kFetchedWordsMax = 64;

std::string Bits(double value) {
  return absl::StrCat("__uint_as_float(", std::bit_cast<uint32_t>(static_cast<float>(value)), "u)");
}

std::string DoubleBits(double value) {
  return absl::StrCat("__longlong_as_double(", std::bit_cast<int64_t>(value), "ll)");
}

class Writer {
 public:
  Writer(const CudaProblem& problem, const CudaShape& shape)
      : problem_(problem),
        shape_(shape),
        schedule_(ScheduleOf(problem.graph, problem.layout,
                             shape.form == Form::kKeptRows ? Keeping::kRow : Keeping::kNothing)),
        lasting_(problem.graph.nodes.size()),
        fetched_(problem.graph.nodes.size()) {
    if (shape.form == Form::kKeptRows) {
      lasting_ = LastingNodes(problem.graph, problem.layout, schedule_);
      FindFetched();
    }
  }

  std::string Write() {
    // Blocks per multiprocessor for 1024 threads there, which bounds their registers.
    const std::string blocks = shape_.form == Form::kKeptRows && shape_.threads > 32
                                   ? absl::StrCat(", ", 1024 / shape_.threads)
                                   : "";
    Line(absl::StrCat("extern \"C\" __global__ void __launch_bounds__(", shape_.block_threads,
                      blocks, ") ", kCudaKernelName, "(", Arguments(), ") {"));
    if (shape_.form == Form::kElements) {
      WriteElements();
    } else {
      WriteRows();
    }
    Line("}");
    return std::move(text_);
  }

 private:
  const Layout& layout() const { return problem_.layout; }
  const Node& NodeAt(int node) const { return problem_.graph.nodes[static_cast<size_t>(node)]; }
  int Result() const { return static_cast<int>(problem_.graph.nodes.size()) - 1; }
  bool IsWide(int node) const { return layout().wide[static_cast<size_t>(node)]; }
  bool Lasts(int node) const { return lasting_[static_cast<size_t>(node)]; }
  bool IsFetched(int node) const { return fetched_[static_cast<size_t>(node)]; }
  bool IsQuick() const { return problem_.arithmetic == CudaArithmetic::kQuick; }
  bool IsReducing(int node) const {
    return IsReduction(NodeAt(node).op) && IsWide(NodeAt(node).operands[0]);
  }
  void Line(const std::string& line) { absl::StrAppend(&text_, line, "\n"); }

  // Inputs of the first pass, which all rows of a thread ask for at its begin.
  void FindFetched() {
    const int bytes = shape_.vector * static_cast<int>(ElementBytes(problem_.data_type));
    const int words = shape_.rows * shape_.chunks * std::max(1, bytes / 4);
    int left = kFetchedWordsMax;
    for (const int node : schedule_.passes[0].wide)
      if (NodeAt(node).op == Operator::kInput && (left -= words) >= 0)
        fetched_[static_cast<size_t>(node)] = true;
  }

  std::string Arguments() const {
    std::string arguments;
    for (size_t i = 0; i < layout().inputs.size(); ++i)
      absl::StrAppend(&arguments, "const T* __restrict__ x", i, ", ");
    return arguments + "T* __restrict__ y";
  }

  std::string Block() const {
    return shape_.blocks <= kGridMax ? "blockIdx.x" : "((i64)blockIdx.y * gridDim.x + blockIdx.x)";
  }

  // Derives the place from the thread's number, of 32 bits where that suffices: a division by a
  // constant is then one product.
  void WriteElements() {
    const int64_t per_row = CeilDivide(layout().columns, shape_.vector);
    const int64_t threads = SaturatingMultiply(shape_.blocks, shape_.block_threads);
    const bool small = threads <= std::numeric_limits<uint32_t>::max();
    const char* const type = small ? "u32" : "i64";
    const char* const suffix = small ? "u" : "ll";
    Line(absl::StrCat("  const ", type, " at = (", type, ")", Block(), " * ", shape_.block_threads,
                      suffix, " + threadIdx.x;"));
    Line(absl::StrCat("  if (at >= ", layout().rows * per_row, suffix, ") return;"));
    Line(absl::StrCat("  const ", type, " row = at / ", per_row, suffix, ";"));
    Line(absl::StrCat("  const i64 column = (i64)(at % ", per_row, suffix, ") * ", shape_.vector,
                      ";"));
    Line("  const int r = 0;");
    row_suffix_ = suffix;
    WriteOffsets();
    WriteValuesOfRows();
    WritePass(schedule_.passes.back());
  }

  // Rows beyond the last are the last once more.
  void WriteRows() {
    Line(absl::StrCat("  const int lane = threadIdx.x % ", shape_.threads, ";"));
    Line(absl::StrCat("  const i64 first = (i64)", Block(), " * ", shape_.rows_of_block(),
                      " + threadIdx.x / ", shape_.threads, ";"));
    WriteValuesOfRows();
    for (int i = 0; i <= Result(); ++i) {
      if (IsFetched(i))
        Line(absl::StrCat("  Vector l", i, "[", shape_.rows, "][", shape_.chunks, "];"));
      if (Lasts(i))
        Line(absl::StrCat("  float k", i, "[", shape_.rows, "][", shape_.chunks * shape_.vector,
                          "];"));
    }
    if (std::find(fetched_.begin(), fetched_.end(), true) != fetched_.end()) WriteFetch();
    for (const Pass& pass : schedule_.passes) {
      BeginRow();
      WritePass(pass);
      Line("  }");
    }
  }

  // One value for each row of the thread.
  void WriteValuesOfRows() {
    for (int i = 0; i <= Result(); ++i)
      if (!IsWide(i) && NodeAt(i).op != Operator::kConstant)
        Line(absl::StrCat("  float v", i, "[", shape_.rows, "];"));
    for (int i = 0; i <= Result(); ++i)
      if (IsSharedDivisor(i))
        Line(absl::StrCat("  ", IsQuick() ? "float" : "Divisor", " q", i, "[", shape_.rows, "];"));
  }

  bool MayHaveRowsLeft() const {
    return layout().rows % shape_.rows_of_block() != 0 || shape_.blocks > kGridMax;
  }

  void BeginRow() {
    Line("#pragma unroll");
    Line(absl::StrCat("  for (int r = 0; r < ", shape_.rows, "; ++r) {"));
    const std::string row = absl::StrCat("first + r * ", shape_.rows_of_step());
    const int64_t last = layout().rows - 1;
    Line(MayHaveRowsLeft() ? absl::StrCat("  const i64 row = ", row, " < ", last, "ll ? ", row,
                                          " : ", last, "ll;")
                           : absl::StrCat("  const i64 row = ", row, ";"));
    row_suffix_ = "ll";
    WriteOffsets();
  }

  void WriteFetch() {
    BeginRow();
    BeginChunks();
    for (int i = 0; i <= Result(); ++i)
      if (IsFetched(i)) Line(absl::StrCat("    l", i, "[r][chunk] = ", LoadOf(i, true), ";"));
    Line("  }\n  }");
  }

  std::string RowOffset(const Walk& walk) const {
    const std::vector<int64_t>& outer = layout().outer;
    std::string offset = "(i64)0";
    int64_t behind = 1;
    for (size_t d = outer.size(); d-- > 0; behind *= outer[d])
      if (walk.strides[d] != 0)
        absl::StrAppend(&offset, " + (i64)(row / ", behind, row_suffix_, " % ", outer[d],
                        row_suffix_, ") * ", walk.strides[d], "ll");
    return offset;
  }

  // Writes the offsets of the row's first elements, for inputs and dropouts.
  void WriteOffsets() {
    for (size_t i = 0; i < layout().inputs.size(); ++i)
      Line(absl::StrCat("  const i64 o", i, " = ", RowOffset(layout().inputs[i]), ";"));
    for (size_t i = 0; i < problem_.graph.nodes.size(); ++i)
      if (problem_.graph.nodes[i].op == Operator::kDropout)
        Line(absl::StrCat("  const i64 d", i, " = ", RowOffset(layout().dropouts[i]), ";"));
  }

  // Each element of it is needed by one row alone.
  bool IsOfOneRow(const Walk& walk) const {
    for (size_t d = 0; d < layout().outer.size(); ++d)
      if (layout().outer[d] > 1 && walk.strides[d] == 0) return false;
    return true;
  }

  // The vector of an input at `column`; `once`: no pass reads it again.
  std::string LoadOf(int node, bool once) const {
    const int index = NodeAt(node).index;
    const std::string at = absl::StrCat("x", index, " + (o", index, " + column)");
    const bool passes_by = once && IsOfOneRow(layout().inputs[static_cast<size_t>(index)]);
    const std::string whole = absl::StrCat(passes_by ? "LoadOnce(" : "Load(", at, ")");
    if (!shape_.has_tail) return whole;
    return absl::StrCat("left >= kVector ? ", whole, " : LoadPart(", at, ", (int)left)");
  }

  // A node's value where it is needed: of the row, or of element j of a vector.
  std::string Name(int node) const {
    if (NodeAt(node).op == Operator::kConstant) return Bits(NodeAt(node).value);
    if (!IsWide(node)) return absl::StrCat("v", node, "[r]");
    if (Lasts(node)) return absl::StrCat("k", node, "[r][chunk * kVector + j]");
    return absl::StrCat("v", node);
  }

  void WriteNarrow(int node, const std::string& value) {
    Line(absl::StrCat("  v", node, "[r] = ", value, ";"));
    if (IsSharedDivisor(node)) Line(absl::StrCat("  q", node, "[r] = ", Divisor(Name(node)), ";"));
  }

  void WritePass(const Pass& pass) {
    for (const int node : pass.narrow)
      if (NodeAt(node).op != Operator::kConstant) WriteNarrow(node, Expression(node));
    for (const int node : pass.reductions) WriteEmpty(node);
    const bool last = &pass == &schedule_.passes.back();
    const bool writes_columns = last && !problem_.narrow_output;
    if (!pass.wide.empty() || !pass.reductions.empty() || writes_columns)
      WriteColumns(pass, writes_columns);
    for (const int node : pass.reductions) WriteNarrow(node, Reduced(node));
    if (last && problem_.narrow_output)
      Line(absl::StrCat("  if (lane == 0) y[row] = Narrow(", Name(Result()), ");"));
  }

  // Every other pass starts at the row's end, where the pass before stopped: the L2 cache may still
  // hold those elements.
  void BeginReading(bool backwards) {
    const int64_t step = int64_t{shape_.threads} * shape_.vector;
    const int64_t columns = layout().columns;
    if (!backwards) {
      Line(absl::StrCat("  for (i64 column = lane * ", shape_.vector, "; column < ", columns,
                        "ll; column += ", step, ") {"));
      return;
    }
    Line(absl::StrCat("  for (i64 column = ", (CeilDivide(columns, step) - 1) * step,
                      "ll + lane * ", shape_.vector, "; column >= 0; column -= ", step, ") {"));
    if (columns % step != 0) Line(absl::StrCat("    if (column >= ", columns, "ll) continue;"));
  }

  void BeginChunks() {
    Line("#pragma unroll");
    Line(absl::StrCat("  for (int chunk = 0; chunk < ", shape_.chunks, "; ++chunk) {"));
    Line(absl::StrCat("    const int column = (chunk * ", shape_.threads, " + lane) * ",
                      shape_.vector, ";"));
    if (int64_t{shape_.threads} * shape_.chunks * shape_.vector != layout().columns)
      Line(absl::StrCat("    if (column >= ", layout().columns, ") continue;"));
  }

  void WriteColumns(const Pass& pass, bool writes) {
    if (shape_.form == Form::kElements) {
      Line("  {");
      if (shape_.has_tail)
        Line(absl::StrCat("    const i64 left = ", layout().columns, "ll - column;"));
    } else if (shape_.form == Form::kKeptRows) {
      BeginChunks();
    } else {
      BeginReading(/*backwards=*/(&pass - schedule_.passes.data()) % 2 == 1);
    }
    // Kept elements are read once; kReadAgain reads elements in later passes, too.
    const bool once = shape_.form != Form::kReadAgain || &pass == &schedule_.passes.back();
    for (const int node : pass.wide)
      if (NodeAt(node).op == Operator::kInput && !IsFetched(node))
        Line(absl::StrCat("    const Vector l", node, " = ", LoadOf(node, once), ";"));
    if (writes) Line("    float out[kVector];");
    Line("#pragma unroll");
    Line("    for (int j = 0; j < kVector; ++j) {");
    for (const int node : pass.wide)
      Line(absl::StrCat("      ", Lasts(node) ? "" : "const float ", Name(node), " = ",
                        Expression(node), ";"));
    for (const int node : pass.reductions) WriteTake(node);
    if (writes) Line(absl::StrCat("      out[j] = ", Name(Result()), ";"));
    Line("    }");
    if (writes) WriteStore();
    Line("  }");
  }

  void WriteStore() {
    const std::string at = absl::StrCat("y + ((i64)row * ", layout().columns, "ll + column)");
    const std::string whole = absl::StrCat("Store(", at, ", Pack(out));");
    if (shape_.has_tail) {
      Line(absl::StrCat("    if (left >= kVector) {\n      ", whole, "\n    } else {\n      ",
                        "StorePart(", at, ", out, (int)left);\n    }"));
    } else {
      Line(absl::StrCat("    ", whole));
    }
  }

  // Sums are in float64, save those that the op's tolerance allows.
  bool SumsInDouble(Operator op) const { return op != Operator::kRowSum || !IsQuick(); }

  void WriteEmpty(int node) {
    const Operator op = NodeAt(node).op;
    const bool is_double = op != Operator::kRowMax && op != Operator::kRowMin && SumsInDouble(op);
    Line(absl::StrCat("  ", is_double ? "double" : "float", " r", node, " = ",
                      op == Operator::kRowMax   ? "__uint_as_float(0xFF800000u)"
                      : op == Operator::kRowMin ? "__uint_as_float(0x7F800000u)"
                                                : "0",
                      ";"));
  }

  void WriteTake(int node) {
    const std::string taken = Name(NodeAt(node).operands[0]);
    const std::string partial = absl::StrCat("r", node);
    const auto taking = [&] {
      switch (NodeAt(node).op) {
        case Operator::kRowMax:
          return absl::StrCat("Max(", taken, ", ", partial, ")");
        case Operator::kRowMin:
          return absl::StrCat("Min(", taken, ", ", partial, ")");
        case Operator::kRowInverseRms:
          return absl::StrCat("fma((double)", taken, ", (double)", taken, ", ", partial, ")");
        default:
          return absl::StrCat(partial, " + ", taken);
      }
    };
    Line(absl::StrCat("      ", partial, " = ", taking(), ";"));
  }

  std::string Share() const { return DoubleBits(1.0 / static_cast<double>(layout().columns)); }

  std::string Reduced(int node) const {
    const Node& reduction = NodeAt(node);
    const auto over = [&](const char* how) {
      return absl::StrCat("RowOf<", how, ", ", node, ", kRowThreads>(r", node, ")");
    };
    switch (reduction.op) {
      case Operator::kRowMax:
        return over("Greatest");
      case Operator::kRowMin:
        return over("Least");
      case Operator::kRowMean:
        return absl::StrCat("(float)(", over("Sum"), " * ", Share(), ")");
      case Operator::kRowInverseRms:
        return absl::StrCat("InverseRms(", over("Sum"), ", ", Share(), ", ",
                            DoubleBits(reduction.value), ")");
      default:
        return absl::StrCat("(float)", over("Sum"));
    }
  }

  // Something that the elements of a row are divided by.
  bool IsSharedDivisor(int node) const {
    if (IsWide(node) || NodeAt(node).op == Operator::kConstant) return false;
    for (int i = 0; i <= Result(); ++i)
      if (NodeAt(i).op == Operator::kDivide && NodeAt(i).operands[1] == node && IsWide(i))
        return true;
    return false;
  }

  // Returns the factor that stands for a division of elements by `value`.
  std::string Divisor(const std::string& value) const {
    return absl::StrCat(IsQuick() ? "(1.0f / " : "DivisorOf(", value, ")");
  }

  // The quotient of an element and a value of its row.
  std::string SharedQuotient(const Node& node) const {
    const std::string dividend = Name(node.operands[0]);
    const int by = node.operands[1];
    const std::string divisor =
        IsSharedDivisor(by) ? absl::StrCat("q", by, "[r]") : Divisor(Name(by));
    return IsQuick() ? absl::StrCat(dividend, " * ", divisor)
                     : absl::StrCat("Quotient(", dividend, ", ", divisor, ")");
  }

  // Returns a faster expression that the op's tolerance allows for a step; empty: none.
  std::string QuickExpression(int id) const {
    const Node& node = NodeAt(id);
    if (node.op == Operator::kExp) return absl::StrCat("QuickExp(", Name(node.operands[0]), ")");
    if (node.op != Operator::kAdd || !IsWide(id)) return "";
    const int first = node.operands[0];
    const Node& product = NodeAt(first);
    if (product.op != Operator::kMultiply || !IsWide(first) || Lasts(first)) return "";
    return absl::StrCat("fmaf(", Name(product.operands[0]), ", ", Name(product.operands[1]), ", ",
                        Name(node.operands[1]), ")");
  }

  std::string Expression(int id) const {
    const Node& node = NodeAt(id);
    const auto operand = [&](int i) { return Name(node.operands[i]); };
    if (node.op == Operator::kConstant) return Bits(node.value);
    if (node.op == Operator::kInput) {
      if (!IsWide(id)) return absl::StrCat("Widen(x", node.index, "[o", node.index, "])");
      return absl::StrCat("At(l", id, IsFetched(id) ? "[r][chunk]" : "", ", j)");
    }
    if (node.op == Operator::kDropout) {
      const auto threshold = static_cast<uint64_t>(std::llround(node.value * 0x1p32));
      return absl::StrCat("Drop(", operand(0), ", d", id, IsWide(id) ? " + column + j" : "", ", ",
                          node.index, "u, ", threshold, "ull, ", Bits(ScaleOf(node.value)), ")");
    }
    if (node.op == Operator::kPow)
      return absl::StrCat("powf(", operand(0), ", ", Bits(node.value), ")");
    if (node.op == Operator::kRowInverseRms)  // a row of one element, as below
      return absl::StrCat("InverseRms((double)", operand(0), " * (double)", operand(0), ", 1.0, ",
                          DoubleBits(node.value), ")");
    if (IsReduction(node.op)) return operand(0);
    if (node.op == Operator::kDivide && IsWide(id) && !IsWide(node.operands[1]))
      return SharedQuotient(node);
    if (IsQuick())
      if (std::string quick = QuickExpression(id); !quick.empty()) return quick;
    std::string values[kOperandsMax];
    for (int i = 0; i < OperandCount(node.op); ++i) values[i] = operand(i);
    return absl::Substitute(CudaTemplateOf(node.op), values[0], values[1], values[2]);
  }

  const CudaProblem& problem_;
  const CudaShape shape_;
  const Schedule schedule_;
  std::vector<bool> lasting_;
  std::vector<bool> fetched_;
  const char* row_suffix_ = "ll";  // suffix of literals of row's type
  std::string text_;
};

}  // namespace

CudaKernel CudaKernelFor(const CudaProblem& problem) {
  return CudaKernelIn(ShapeFor(problem.graph, problem.layout, problem.data_type), problem);
}

CudaKernel CudaKernelIn(const CudaShape& shape, const CudaProblem& problem) {
  WARPCALL_DCHECK(problem.layout.rows > 0 && problem.layout.columns > 0, problem.layout.rows,
                  problem.layout.columns);
  WARPCALL_DCHECK(shape.block_threads % shape.threads == 0, shape.block_threads, shape.threads);
  // Sources that are alike are compiled once.
  const bool is_seeded = absl::c_any_of(
      problem.graph.nodes, [](const Node& node) { return node.op == Operator::kDropout; });
  const CudaPrelude prelude = {.data_type = problem.data_type,
                               .vector = shape.vector,
                               .row_threads = shape.threads,
                               .reduces = problem.graph.HasReductions(),
                               .seed = is_seeded ? problem.seed : 0};
  return {.source = absl::StrCat(PreludeText(prelude), Writer(problem, shape).Write()),
          .shape = shape};
}

}  // namespace warpcall::expression
