// How a generated kernel shares out its problem among threads: pure functions, no CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/expression/layout.h"
#include "kernels/expression/schedule.h"
#include "proto/common/data_type.h"

namespace warpcall::expression {

struct CudaShape {
  enum class Form : uint8_t {
    kElements,   // a thread for each vector of elements
    kKeptRows,   // part of a warp to a block for each row, which stays in registers
    kReadAgain,  // a warp to a block for each row, which is read once for each pass
  };

  Form form = Form::kElements;
  int vector = 1;           // neighbouring elements that a thread moves at once
  bool has_tail = false;    // the last vector may be a part
  int threads = 1;          // for each row, a power of two
  int chunks = 1;           // vectors of a row in one thread, for kept rows
  int rows = 1;             // rows of one thread, which loads all before it computes one
  int block_threads = 256;  // a multiple of `threads`
  int64_t blocks = 0;

  int rows_of_step() const { return block_threads / threads; }
  int rows_of_block() const { return rows_of_step() * rows; }
};

// REQUIRES: the output has elements.
CudaShape ShapeFor(const Graph& graph, const Layout& layout, DataType data_type);

// Returns for each node whether a thread holds the node's elements of a row beyond the pass that
// computes them.
std::vector<bool> LastingNodes(const Graph& graph, const Layout& layout, const Schedule& schedule);

}  // namespace warpcall::expression
