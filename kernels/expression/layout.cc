#include "kernels/expression/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

// Bit mask of the output's dimensions that a tensor has; the lowest bit is the first dimension. The
// tensor has one element in each other dimension.
using Extent = uint32_t;

Extent Bit(size_t dimension) { return Extent{1} << dimension; }

// Dimensions counted from the last, as broadcasting aligns them.
int64_t DimFromLast(const Dims& dims, size_t from_last) {
  return from_last < dims.size() ? dims[dims.size() - 1 - from_last] : 1;
}

Extent ExtentOf(const Dims& dims, const Dims& output) {
  Extent extent = 0;
  const size_t lacking = output.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != 1) extent |= Bit(lacking + d);
  return extent;
}

// The output's dimensions as Layout has them, and the extents of the inputs in these.
struct Loops {
  Dims dims;
  std::vector<Extent> inputs;
};

std::vector<Extent> NodeExtents(const Graph& graph, const std::vector<Extent>& inputs,
                                size_t rank) {
  std::vector<Extent> extents;
  for (const Node& node : graph.nodes) {
    Extent extent = node.op == Operator::kInput ? inputs[static_cast<size_t>(node.index)] : 0;
    for (int i = 0; i < OperandCount(node.op); ++i)
      extent |= extents[static_cast<size_t>(node.operands[i])];
    if (IsReduction(node.op)) extent &= ~Bit(rank - 1);
    extents.push_back(extent);
  }
  return extents;
}

// Returns the extents of all tensors that the loops index: the inputs, and the nodes in which
// dropout counts elements.
std::vector<Extent> WalkedExtents(const Graph& graph, const Loops& loops) {
  const std::vector<Extent> nodes = NodeExtents(graph, loops.inputs, loops.dims.size());
  std::vector<Extent> walked = loops.inputs;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (graph.nodes[i].op == Operator::kDropout) walked.push_back(nodes[i]);
  return walked;
}

// Removes dimensions of one element, and joins neighbours that all tensors have or lack alike. The
// last dimension stays by itself when rows are reduced.
Loops Joined(const Graph& graph, const Loops& whole) {
  const std::vector<Extent> walked = WalkedExtents(graph, whole);
  const bool keep_last = graph.HasReductions();
  const size_t rank = whole.dims.size();
  Loops joined = {.dims = {}, .inputs = std::vector<Extent>(whole.inputs.size())};
  size_t previous = rank;  // the dimension whose place in `joined` is the last
  for (size_t d = 0; d < rank; ++d) {
    const bool last = d + 1 == rank;
    if (whole.dims[d] == 1 && !(last && (keep_last || joined.dims.empty()))) continue;
    const bool alike = previous < rank && !(last && keep_last) &&
                       std::all_of(walked.begin(), walked.end(), [&](Extent extent) {
                         return ((extent & Bit(d)) != 0) == ((extent & Bit(previous)) != 0);
                       });
    previous = d;
    if (alike) {
      joined.dims.back() *= whole.dims[d];
      continue;
    }
    joined.dims.push_back(whole.dims[d]);
    for (size_t i = 0; i < whole.inputs.size(); ++i)
      if ((whole.inputs[i] & Bit(d)) != 0) joined.inputs[i] |= Bit(joined.dims.size() - 1);
  }
  return joined;
}

Walk WalkOf(Extent extent, const Dims& dims) {
  Walk walk;
  const size_t outer = dims.size() - 1;
  walk.wide = (extent & Bit(outer)) != 0;
  walk.strides.resize(outer);
  int64_t stride = walk.wide ? dims[outer] : 1;
  for (size_t d = outer; d-- > 0;) {
    if ((extent & Bit(d)) == 0) continue;
    walk.strides[d] = stride;
    stride *= dims[d];
  }
  return walk;
}

int64_t ElementsOf(Extent extent, const Dims& dims) {
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    if ((extent & Bit(d)) != 0) elements = SaturatingMultiply(elements, dims[d]);
  return elements;
}

}  // namespace

absl::StatusOr<Dims> Broadcast(absl::Span<const TensorSpec> inputs) {
  size_t rank = 0;
  for (const TensorSpec& input : inputs) rank = std::max(rank, input.dims.size());
  Dims dims(rank, 1);
  for (size_t from_last = 0; from_last < rank; ++from_last) {
    int64_t& dim = dims[rank - 1 - from_last];
    size_t from = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t own = DimFromLast(inputs[i].dims, from_last);
      if (own == 1 || own == dim) continue;
      if (dim != 1)
        return absl::InvalidArgumentError(absl::StrCat(
            "inputs x", from, ", ", ToString(inputs[from]), ", and x", i, ", ", ToString(inputs[i]),
            ", cannot be broadcast: counted from the last, their dimension ", from_last, " is ",
            dim, " and ", own, "; the two must be equal, or one of them 1"));
      dim = own;
      from = i;
    }
  }
  return dims;
}

int64_t Walk::RowOffset(absl::Span<const int64_t> outer, int64_t row) const {
  WARPCALL_DCHECK(row >= 0 && outer.size() == strides.size(), row, outer.size(), strides.size());
  int64_t offset = 0;
  for (size_t d = outer.size(); d-- > 0; row /= outer[d]) offset += row % outer[d] * strides[d];
  return offset;
}

Layout LayoutOf(const Graph& graph, absl::Span<const TensorSpec> inputs) {
  WARPCALL_DCHECK(static_cast<int>(inputs.size()) == graph.inputs, inputs.size(), graph.inputs);
  const absl::StatusOr<Dims> broadcast = Broadcast(inputs);
  WARPCALL_CHECK(broadcast.ok(), broadcast.status().message());
  const Dims& output = *broadcast;
  Loops whole = {.dims = output, .inputs = {}};
  for (const TensorSpec& input : inputs) whole.inputs.push_back(ExtentOf(input.dims, output));
  const Loops loops = Joined(graph, whole);
  Layout layout;
  layout.columns = loops.dims.back();
  layout.outer.assign(loops.dims.begin(), loops.dims.end() - 1);
  for (const int64_t dim : layout.outer) layout.rows = SaturatingMultiply(layout.rows, dim);
  for (const Extent extent : loops.inputs) layout.inputs.push_back(WalkOf(extent, loops.dims));
  const std::vector<Extent> nodes = NodeExtents(graph, loops.inputs, loops.dims.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    layout.wide.push_back((nodes[i] & Bit(loops.dims.size() - 1)) != 0);
    layout.elements.push_back(ElementsOf(nodes[i], loops.dims));
    layout.dropouts.push_back(graph.nodes[i].op == Operator::kDropout ? WalkOf(nodes[i], loops.dims)
                                                                      : Walk());
  }
  return layout;
}

}  // namespace warpcall::expression
