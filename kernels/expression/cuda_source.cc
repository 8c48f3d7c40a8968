#include "kernels/expression/cuda_source.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "kernels/common/saturate.h"
#include "kernels/expression/cuda_prelude.h"
#include "kernels/expression/mask.h"
#include "kernels/expression/schedule.h"

namespace warpcall::expression {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kElementThreads = 256;
constexpr int kWarp = 32;
constexpr int kRowThreadsMax = 1024;
constexpr int kWarpsOfRows = 4;  // rows of a block where each has a warp
// Elements that a thread keeps of a row, for each value that lasts over passes.
constexpr int kKeptMax = 32;

// How a row is shared out.
struct Shape {
  CudaKernel::Form form = CudaKernel::Form::kElements;
  int vector = 1;   // neighbouring elements of a thread
  int threads = 1;  // of a row
  int chunks = 1;   // vectors of a thread, where rows are kept

  int rows_of_block() const { return threads == kWarp ? kWarpsOfRows : 1; }
};

Shape ShapeFor(const CudaProblem& problem) {
  Shape shape;
  const int64_t columns = problem.layout.columns;
  // Rows begin where vectors do, if they are whole vectors long.
  const int most = kVectorBytes / static_cast<int>(ElementBytes(problem.data_type));
  while (shape.vector < most && columns % (2 * shape.vector) == 0) shape.vector *= 2;
  if (!problem.graph.HasReductions()) return shape;
  const int64_t vectors = columns / shape.vector;
  const int64_t chunks_max = kKeptMax / shape.vector;
  shape.form = CudaKernel::Form::kKeptRows;
  shape.threads = kWarp;
  while (shape.threads < kRowThreadsMax && vectors > shape.threads * (chunks_max / 2))
    shape.threads *= 2;
  const int64_t chunks = CeilDivide(vectors, shape.threads);
  if (chunks > chunks_max) {
    shape.form = CudaKernel::Form::kReadAgain;
    return shape;
  }
  shape.chunks = static_cast<int>(chunks);
  return shape;
}

std::string Bits(double value) {
  return absl::StrCat("__uint_as_float(", std::bit_cast<uint32_t>(static_cast<float>(value)), "u)");
}

class Writer {
 public:
  Writer(const CudaProblem& problem, const Shape& shape)
      : problem_(problem),
        shape_(shape),
        schedule_(ScheduleOf(problem.graph, problem.layout, keeping())),
        lasting_(problem.graph.nodes.size()) {
    if (keeping() == Keeping::kRow) FindLasting();
  }

  std::string Write() {
    const Layout& layout = problem_.layout;
    Line(absl::StrCat("extern \"C\" __global__ void __launch_bounds__(", BlockThreads(), ") ",
                      kCudaKernelName, "(", Arguments(), ") {"));
    if (shape_.form == CudaKernel::Form::kElements) {
      const int64_t per_row = layout.columns / shape_.vector;
      Line(absl::StrCat("  const i64 at = (i64)blockIdx.x * ", BlockThreads(), " + threadIdx.x;"));
      Line(absl::StrCat("  if (at >= ", layout.rows * per_row, "ll) return;"));
      Line(absl::StrCat("  const i64 row = at / ", per_row, "ll;"));
      Line(absl::StrCat("  const i64 column = at % ", per_row, "ll * ", shape_.vector, ";"));
    } else {
      Line(absl::StrCat("  const int lane = threadIdx.x % ", shape_.threads, ";"));
      Line(absl::StrCat("  const i64 row = (i64)blockIdx.x * ", shape_.rows_of_block(),
                        " + threadIdx.x / ", shape_.threads, ";"));
      Line(absl::StrCat("  if (row >= ", layout.rows, "ll) return;"));
    }
    WriteOffsets();
    for (size_t i = 0; i < lasting_.size(); ++i)
      if (lasting_[i]) Line(absl::StrCat("  float k", i, "[", shape_.chunks * shape_.vector, "];"));
    for (const Pass& pass : schedule_.passes) WritePass(pass);
    Line("}");
    return std::move(text_);
  }

  int BlockThreads() const {
    return shape_.form == CudaKernel::Form::kElements ? kElementThreads
                                                      : shape_.threads * shape_.rows_of_block();
  }

 private:
  Keeping keeping() const {
    return shape_.form == CudaKernel::Form::kKeptRows ? Keeping::kRow : Keeping::kNothing;
  }
  const Node& NodeAt(int node) const { return problem_.graph.nodes[static_cast<size_t>(node)]; }
  bool IsWide(int node) const { return problem_.layout.wide[static_cast<size_t>(node)]; }
  bool Lasts(int node) const { return lasting_[static_cast<size_t>(node)]; }
  void Line(const std::string& line) { absl::StrAppend(&text_, line, "\n"); }

  // Wide nodes that a later pass needs.
  void FindLasting() {
    std::vector<size_t> pass_of(lasting_.size());
    for (size_t p = 0; p < schedule_.passes.size(); ++p)
      for (const int node : schedule_.passes[p].wide) pass_of[static_cast<size_t>(node)] = p;
    for (size_t p = 0; p < schedule_.passes.size(); ++p) {
      const auto use = [&](int node) {
        for (int i = 0; i < OperandCount(NodeAt(node).op); ++i) {
          const int operand = NodeAt(node).operands[i];
          const auto at = static_cast<size_t>(operand);
          if (IsWide(operand) && pass_of[at] < p) lasting_[at] = true;
        }
      };
      for (const int node : schedule_.passes[p].wide) use(node);
      for (const int node : schedule_.passes[p].reductions) use(node);
      const int result = static_cast<int>(lasting_.size()) - 1;
      if (p + 1 == schedule_.passes.size() && IsWide(result) &&
          pass_of[static_cast<size_t>(result)] < p)
        lasting_.back() = true;
    }
  }

  std::string Arguments() const {
    std::string arguments;
    for (size_t i = 0; i < problem_.layout.inputs.size(); ++i)
      absl::StrAppend(&arguments, "const T* __restrict__ x", i, ", ");
    return arguments + "T* __restrict__ y";
  }

  std::string RowOffset(const Walk& walk) const {
    const std::vector<int64_t>& outer = problem_.layout.outer;
    std::string offset = "0";
    int64_t behind = 1;
    for (size_t d = outer.size(); d-- > 0; behind *= outer[d])
      if (walk.strides[d] != 0)
        absl::StrAppend(&offset, " + row / ", behind, "ll % ", outer[d], "ll * ", walk.strides[d],
                        "ll");
    return offset;
  }

  // Where the row's elements begin, of inputs and of what dropout counts in.
  void WriteOffsets() {
    for (size_t i = 0; i < problem_.layout.inputs.size(); ++i)
      Line(absl::StrCat("  const i64 o", i, " = ", RowOffset(problem_.layout.inputs[i]), ";"));
    for (size_t i = 0; i < problem_.graph.nodes.size(); ++i)
      if (problem_.graph.nodes[i].op == Operator::kDropout)
        Line(absl::StrCat("  const i64 d", i, " = ", RowOffset(problem_.layout.dropouts[i]), ";"));
  }

  // A node's value where it is needed: of the row, or of element j of a vector.
  std::string Name(int node) const {
    if (Lasts(node)) return absl::StrCat("k", node, "[chunk * ", shape_.vector, " + j]");
    return absl::StrCat("v", node);
  }

  void WritePass(const Pass& pass) {
    for (const int node : pass.narrow)
      Line(absl::StrCat("  const float v", node, " = ", Expression(node), ";"));
    for (const int node : pass.reductions) {
      const Operator op = NodeAt(node).op;
      const bool sums = op == Operator::kRowSum || op == Operator::kRowMean;
      Line(absl::StrCat("  ", sums ? "double" : "float", " r", node, " = ",
                        sums                      ? "0"
                        : op == Operator::kRowMax ? "__uint_as_float(0xFF800000u)"
                                                  : "__uint_as_float(0x7F800000u)",
                        ";"));
    }
    const bool last = &pass == &schedule_.passes.back();
    if (!pass.wide.empty() || !pass.reductions.empty() || last) WriteColumns(pass, last);
    for (const int node : pass.reductions) WriteReduction(node);
  }

  void WriteColumns(const Pass& pass, bool last) {
    const int64_t columns = problem_.layout.columns;
    if (shape_.form == CudaKernel::Form::kKeptRows) {
      Line("#pragma unroll");
      Line(absl::StrCat("  for (int chunk = 0; chunk < ", shape_.chunks, "; ++chunk) {"));
      Line(absl::StrCat("    const i64 column = (i64)(chunk * ", shape_.threads, " + lane) * ",
                        shape_.vector, ";"));
      Line(absl::StrCat("    if (column >= ", columns, "ll) continue;"));
    } else if (shape_.form == CudaKernel::Form::kReadAgain) {
      Line(absl::StrCat("  for (i64 column = (i64)lane * ", shape_.vector, "; column < ", columns,
                        "ll; column += ", shape_.threads * shape_.vector, ") {"));
    } else {
      Line("  {");
    }
    for (const int node : pass.wide)
      if (const Node& input = NodeAt(node); input.op == Operator::kInput)
        Line(absl::StrCat("    const Vector l", node, " = *(const Vector*)(x", input.index, " + o",
                          input.index, " + column);"));
    if (last) Line("    Vector out;");
    Line("#pragma unroll");
    Line(absl::StrCat("    for (int j = 0; j < ", shape_.vector, "; ++j) {"));
    for (const int node : pass.wide)
      Line(absl::StrCat("      ", Lasts(node) ? "" : "const float ", Name(node), " = ",
                        Expression(node), ";"));
    for (const int node : pass.reductions) WriteTake(node);
    const int result = static_cast<int>(problem_.graph.nodes.size()) - 1;
    if (last) Line(absl::StrCat("      out.v[j] = Narrow(", Name(result), ");"));
    Line("    }");
    if (last) Line(absl::StrCat("    *(Vector*)(y + row * ", columns, "ll + column) = out;"));
    Line("  }");
  }

  void WriteTake(int node) {
    const std::string taken = Name(NodeAt(node).operands[0]);
    const Operator op = NodeAt(node).op;
    if (op == Operator::kRowMax || op == Operator::kRowMin) {
      Line(absl::StrCat("      r", node, " = ", op == Operator::kRowMax ? "Max" : "Min", "(", taken,
                        ", r", node, ");"));
    } else {
      Line(absl::StrCat("      r", node, " += ", taken, ";"));
    }
  }

  void WriteReduction(int node) {
    const Operator op = NodeAt(node).op;
    const char* const function = op == Operator::kRowMax   ? "RowMax"
                                 : op == Operator::kRowMin ? "RowMin"
                                                           : "RowSum";
    const std::string divided =
        op == Operator::kRowMean ? absl::StrCat(" / ", problem_.layout.columns, ".0") : "";
    Line(absl::StrCat("  const float v", node, " = (float)(", function, "(r", node, ")", divided,
                      ");"));
  }

  std::string Expression(int id) const {
    const Node& node = NodeAt(id);
    const auto operand = [&](int i) { return Name(node.operands[i]); };
    if (node.op == Operator::kConstant) return Bits(node.value);
    if (node.op == Operator::kInput)
      return IsWide(id) ? absl::StrCat("Widen(l", id, ".v[j])")
                        : absl::StrCat("Widen(x", node.index, "[o", node.index, "])");
    if (node.op == Operator::kDropout) {
      const auto threshold = static_cast<uint64_t>(std::llround(node.value * 0x1p32));
      return absl::StrCat("Drop(", operand(0), ", d", id, IsWide(id) ? " + column + j" : "", ", ",
                          node.index, "u, ", threshold, "ull, ", Bits(ScaleOf(node.value)), ")");
    }
    if (node.op == Operator::kPow)
      return absl::StrCat("powf(", operand(0), ", ", Bits(node.value), ")");
    if (IsReduction(node.op)) return operand(0);  // of a row of one element
    std::string values[kOperandsMax];
    for (int i = 0; i < OperandCount(node.op); ++i) values[i] = operand(i);
    return absl::Substitute(CudaTemplateOf(node.op), values[0], values[1], values[2]);
  }

  const CudaProblem& problem_;
  const Shape shape_;
  const Schedule schedule_;
  std::vector<bool> lasting_;
  std::string text_;
};

}  // namespace

CudaKernel CudaKernelFor(const CudaProblem& problem) {
  const Shape shape = ShapeFor(problem);
  Writer writer(problem, shape);
  const CudaPrelude prelude = {.data_type = problem.data_type,
                               .vector = shape.vector,
                               .row_threads = shape.threads,
                               .columns = problem.layout.columns,
                               .seed = problem.seed};
  CudaKernel kernel = {.source = absl::StrCat(PreludeText(prelude), writer.Write()),
                       .form = shape.form,
                       .threads = writer.BlockThreads()};
  kernel.blocks = shape.form == CudaKernel::Form::kElements
                      ? CeilDivide(problem.layout.rows * (problem.layout.columns / shape.vector),
                                   kElementThreads)
                      : CeilDivide(problem.layout.rows, shape.rows_of_block());
  return kernel;
}

}  // namespace warpcall::expression
