#include "kernels/expression/cuda_shape.h"

#include <algorithm>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

using Form = CudaShape::Form;

constexpr int kVectorBytes = 16;
constexpr int kWarp = 32;
constexpr int kRowBlockThreads = 128;  // for rows that take a warp or less
constexpr int kBlockThreadsMax = 1024;
constexpr int kReadAgainThreadsMax = 512;
// Elements that a thread keeps, of all nodes, as in the hand-written kernels: 64 in a warp that
// shares a row, half of that in a block. A multiprocessor then has 1024 threads at once.
constexpr int kKeptInWarp = 64;
constexpr int kKeptInBlock = 32;
// Elements that a thread has in flight, which short rows reach with several of them.
constexpr int kInFlight = 32;
constexpr int kRowsMax = 8;
// Limits of the statements that loops over a thread's elements unroll to, for compile time. NVRTC
// took 5 s for 4096 of rows read in each pass, 0.8 s for 1024; single elements allow more.
constexpr int kStatementsMax = 4096;
constexpr int kReadAgainStatementsMax = 1024;
// Enough to keep every GPU of today busy: several rows a thread are for larger problems.
constexpr int64_t kBlocksMin = 512;

// The passes that compute each wide node, and the passes that last need it.
struct Life {
  std::vector<int> computed;  // -1: in none
  std::vector<int> needed;
};

Life LifeOf(const Graph& graph, const Layout& layout, const Schedule& schedule) {
  Life life = {std::vector<int>(graph.nodes.size(), -1), std::vector<int>(graph.nodes.size(), -1)};
  const auto is_wide = [&](int node) { return layout.wide[static_cast<size_t>(node)]; };
  for (int p = 0; p < static_cast<int>(schedule.passes.size()); ++p) {
    const Pass& pass = schedule.passes[static_cast<size_t>(p)];
    const auto use = [&](int node) {
      const Node& user = graph.nodes[static_cast<size_t>(node)];
      for (int i = 0; i < OperandCount(user.op); ++i)
        if (is_wide(user.operands[i])) life.needed[static_cast<size_t>(user.operands[i])] = p;
    };
    for (const int node : pass.wide) {
      life.computed[static_cast<size_t>(node)] = p;
      use(node);
    }
    for (const int node : pass.reductions) use(node);
  }
  if (is_wide(static_cast<int>(graph.nodes.size()) - 1))
    life.needed.back() = static_cast<int>(schedule.passes.size()) - 1;
  return life;
}

// The most nodes that are kept at once from a pass to a later one; at least 1.
int MostKept(const Life& life, size_t passes) {
  int most = 1;
  for (int p = 0; p + 1 < static_cast<int>(passes); ++p) {
    int kept = 0;
    for (size_t i = 0; i < life.computed.size(); ++i)
      if (life.computed[i] >= 0 && life.computed[i] <= p && life.needed[i] > p) ++kept;
    most = std::max(most, kept);
  }
  return most;
}

int64_t PowerOfTwoFrom(int64_t least, int64_t most) {
  int64_t power = 1;
  while (power < least && power < most) power *= 2;
  return power;
}

int WidthThatDivides(int64_t columns, int widest) {
  int width = 1;
  while (width < widest && columns % (2 * width) == 0) width *= 2;
  return width;
}

// A single row is read by whole vectors and what is left; rows begin where vectors do only if they
// are whole vectors long.
CudaShape ElementsShape(const Layout& layout, int widest) {
  CudaShape shape;
  shape.vector = layout.rows == 1 ? widest : WidthThatDivides(layout.columns, widest);
  shape.has_tail = layout.columns % shape.vector != 0;
  const int64_t vectors = SaturatingMultiply(layout.rows, CeilDivide(layout.columns, shape.vector));
  shape.blocks = CeilDivide(vectors, shape.block_threads);
  return shape;
}

// False when registers do not hold a row.
bool KeepRows(const Layout& layout, int kept, int nodes, CudaShape* shape) {
  const int64_t vectors = layout.columns / shape->vector;
  const int most = kStatementsMax / nodes;
  const auto elements = [&] { return CeilDivide(vectors, shape->threads) * shape->vector; };
  shape->threads = static_cast<int>(PowerOfTwoFrom(vectors, kWarp));
  shape->block_threads = kRowBlockThreads;
  if (elements() > std::min(kKeptInWarp / kept, most)) {
    shape->threads = kRowBlockThreads;
    while (shape->threads < kBlockThreadsMax && elements() > std::min(kKeptInBlock / kept, most))
      shape->threads *= 2;
    if (elements() > std::min(kKeptInBlock / kept, most)) return false;
    shape->block_threads = shape->threads;
  }
  shape->chunks = static_cast<int>(CeilDivide(vectors, shape->threads));
  const int64_t of_row = elements();
  while (shape->threads <= kWarp && shape->rows < kRowsMax &&
         2 * shape->rows * of_row * kept <= kInFlight && 2 * shape->rows * of_row <= most &&
         CeilDivide(layout.rows, 2 * shape->rows_of_block()) >= kBlocksMin)
    shape->rows *= 2;
  return true;
}

// Each pass of such rows computes again what it needs.
int StatementsOfReadAgain(const Graph& graph, const Layout& layout) {
  size_t statements = 0;
  for (const Pass& pass : ScheduleOf(graph, layout, Keeping::kNothing).passes)
    statements += pass.wide.size() + pass.reductions.size();
  return static_cast<int>(statements);
}

}  // namespace

CudaShape ShapeFor(const Graph& graph, const Layout& layout, DataType data_type) {
  WARPCALL_DCHECK(layout.rows > 0 && layout.columns > 0, layout.rows, layout.columns);
  const int widest = kVectorBytes / static_cast<int>(ElementBytes(data_type));
  if (!graph.HasReductions()) return ElementsShape(layout, widest);
  const Schedule schedule = ScheduleOf(graph, layout, Keeping::kRow);
  const int kept = MostKept(LifeOf(graph, layout, schedule), schedule.passes.size());
  CudaShape shape;
  shape.vector = WidthThatDivides(layout.columns, widest);
  shape.form = Form::kKeptRows;
  if (!KeepRows(layout, kept, static_cast<int>(graph.nodes.size()), &shape)) {
    const int statements = StatementsOfReadAgain(graph, layout);
    while (shape.vector > 1 && statements * shape.vector > kReadAgainStatementsMax)
      shape.vector /= 2;
    const int64_t vectors = layout.columns / shape.vector;
    shape.form = Form::kReadAgain;
    shape.chunks = 1;
    shape.threads =
        std::max(kWarp, static_cast<int>(PowerOfTwoFrom(vectors, kReadAgainThreadsMax)));
    shape.block_threads = shape.threads > kWarp ? shape.threads : kRowBlockThreads;
  }
  shape.blocks = CeilDivide(layout.rows, shape.rows_of_block());
  return shape;
}

std::vector<bool> LastingNodes(const Graph& graph, const Layout& layout, const Schedule& schedule) {
  const Life life = LifeOf(graph, layout, schedule);
  std::vector<bool> lasting;
  for (size_t i = 0; i < life.computed.size(); ++i)
    lasting.push_back(life.computed[i] >= 0 && life.needed[i] > life.computed[i]);
  return lasting;
}

}  // namespace warpcall::expression
