// Shares out the loading of an operand's tile in the tiled kernels.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_select.h"

namespace warpcall::matmul {

// One operand, from the start of a block's tile on.
template <typename T>
struct Source {
  const T* data;
  int64_t stride;  // between neighbours along the index that is not adjacent
  int64_t outer;   // the reach of the operand's outer index from here
};

// Returns the operand from (outer, depth) on.
template <Adjacent kAdjacent, typename T>
__device__ inline Source<T> SourceFrom(const Source<T>& operand, int64_t outer, int64_t depth) {
  const int64_t row = kAdjacent == Adjacent::kDepth ? outer : depth;
  const int64_t column = kAdjacent == Adjacent::kDepth ? depth : outer;
  return {.data = operand.data + row * operand.stride + column,
          .stride = operand.stride,
          .outer = operand.outer - outer};
}

// A block's part of both operands, and its terms of k: at least one.
template <typename T>
struct Sources {
  Source<T> a;
  Source<T> b;
  int64_t depth;
};

// A tile is walked in passes. Rows follow the index that is not adjacent, columns the adjacent one;
// in a pass the block's threads take pieces of kPiece neighbours, kAcross of them side by side.
template <Adjacent kAdjacent, int kOuter, int kDepth, int kThreads, int kPieceElements,
          int kPiecesAcross>
struct Walk {
  static constexpr int kPiece = kPieceElements;
  static constexpr int kAcross = kPiecesAcross;
  static constexpr bool kByOuter = kAdjacent == Adjacent::kDepth;  // true: rows are outer indices
  static constexpr int kTileDepth = kDepth;
  static constexpr int kRows = kByOuter ? kOuter : kDepth;
  static constexpr int kColumns = kByOuter ? kDepth : kOuter;
  static constexpr int kColumnsPerPass = kAcross * kPiece;
  static constexpr int kRowsPerPass = kThreads / kAcross;
  static constexpr int kPassesAcross = kColumns / kColumnsPerPass;
  static constexpr int kPasses = kRows / kRowsPerPass * kPassesAcross;
  static_assert(kThreads % kAcross == 0 && kRows % kRowsPerPass == 0);
  static_assert(kColumns % kColumnsPerPass == 0);
};

// One thread's pieces. REQUIRES: where kPiece > 1, the operand's rows begin at multiples of a piece
// and hold whole pieces.
template <typename T, typename Walk>
class Walker {
 public:
  static constexpr int kPasses = Walk::kPasses;
  static_assert(kPasses <= 32, "a bit of outer_valid_ per pass");

  __device__ explicit Walker(const Source<T>& source)
      : row_(static_cast<int>(threadIdx.x) / Walk::kAcross),
        column_(static_cast<int>(threadIdx.x) % Walk::kAcross * Walk::kPiece),
        from_(source.data + row_ * source.stride + column_),
        step_(Walk::kRowsPerPass * source.stride) {
    WARPCALL_DEVICE_CHECK(source.stride % Walk::kPiece == 0);
    for (int pass = 0; pass < kPasses; ++pass)
      if ((Walk::kByOuter ? Row(pass) : Column(pass)) < source.outer) outer_valid_ |= 1u << pass;
  }

  __device__ int Row(int pass) const {
    return row_ + pass / Walk::kPassesAcross * Walk::kRowsPerPass;
  }
  __device__ int Column(int pass) const {
    return column_ + pass % Walk::kPassesAcross * Walk::kColumnsPerPass;
  }
  __device__ const T* From(int pass) const {
    return from_ + pass / Walk::kPassesAcross * step_ +
           pass % Walk::kPassesAcross * Walk::kColumnsPerPass;
  }

  // Returns true if the operand has the piece, as it has the tile's first `depth` terms of k.
  __device__ bool Valid(int pass, int depth) const {
    return (Walk::kByOuter ? Column(pass) : Row(pass)) < depth && (outer_valid_ >> pass & 1u) != 0;
  }

  // Moves to the tile of the next terms of k.
  __device__ void Advance() {
    from_ += Walk::kByOuter ? Walk::kTileDepth : Walk::kTileDepth / Walk::kRowsPerPass * step_;
  }

 private:
  int row_;
  int column_;
  const T* from_;
  int64_t step_;
  uint32_t outer_valid_ = 0;
};

}  // namespace warpcall::matmul
