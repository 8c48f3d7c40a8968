// Layout of 16-bit elements in the tensor-core kernel's shared memory, and the lanes that read
// them. Plain arithmetic: the kernel evaluates it on the GPU, the tests on the CPU.
//
// A tile lies in rows of chunks; a chunk is 16 bytes, 8 elements along the operand's adjacent
// index. Rows are indexed by the other index. ldmatrix reads 8 chunks of 8 neighbouring rows at a
// time, and a copy writes 8 neighbouring chunks of a row: both touch all 32 banks once because the
// chunk's place in its row is exclusive-ored with the row.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_select.h"

namespace warpcall::matmul {

inline constexpr int kChunkBytes = 16;
inline constexpr int kChunkElements = 8;

// Rows and columns, and depth, of the fragments that one ldmatrix.x4 fills.
inline constexpr int kFragmentOuter = 16;
inline constexpr int kFragmentDepth = 16;

// The number that a chunk's index within its row is exclusive-ored with. Four chunks fill half of
// the banks, so two rows lie side by side.
template <int kRowChunks>
constexpr uint32_t SwizzleOf(uint32_t row) {
  static_assert(kRowChunks == 4 || kRowChunks % 8 == 0);
  return kRowChunks == 4 ? (row >> 1) & 3 : row & 7;
}

// Offset of a chunk, in bytes from the start of the tile.
template <int kRowChunks>
constexpr uint32_t ChunkOffset(uint32_t row, uint32_t chunk) {
  WARPCALL_DEVICE_CHECK(chunk < kRowChunks, row, chunk);
  return (row * kRowChunks + (chunk ^ SwizzleOf<kRowChunks>(row))) * kChunkBytes;
}

// One operand's tile in shared memory.
template <Adjacent kAdjacent, int kOuter, int kDepth>
struct OperandTile {
  static constexpr int kOuterSize = kOuter;
  static constexpr int kDepthSize = kDepth;
  static constexpr int kRows = kAdjacent == Adjacent::kDepth ? kOuter : kDepth;
  static constexpr int kRowChunks =
      (kAdjacent == Adjacent::kDepth ? kDepth : kOuter) / kChunkElements;
  static constexpr uint32_t kRowBytes = kRowChunks * kChunkBytes;
  static constexpr uint32_t kBytes = kRows * kRowBytes;
};

enum class Side : uint8_t { kA, kB };

// The address that a lane hands to ldmatrix.x4, in two parts: with the fragment's number and the
// step of k they give the offset without computing the swizzle anew.
struct LaneAddress {
  uint32_t row_bytes;
  uint32_t chunk_bytes;
};

// ldmatrix.x4 loads four matrices of 8 x 8; lane 8 j + r gives the address of row r of matrix j.
// The registers of mma.m16n8k16 want them as (outer, depth) = (low, low), (high, low), (low, high),
// (high, high) for a, and for two neighbouring fragments of b as (low, low), (low, high), (high,
// low), (high, high) (PTX ISA, "Matrix Fragments for mma.m16n8k16"). Where k is adjacent a lane
// then holds two neighbours in k as mma wants them; otherwise ldmatrix transposes.
// `warp_outer`: the start of the warp's part of the tile.
template <Side kSide, Adjacent kAdjacent, int kRowChunks>
constexpr LaneAddress LaneAddressOf(uint32_t lane, uint32_t warp_outer) {
  WARPCALL_DEVICE_CHECK(lane < 32 && warp_outer % kFragmentOuter == 0, lane, warp_outer);
  const uint32_t matrix = lane / 8;
  const uint32_t high_outer = kSide == Side::kA ? matrix % 2 : matrix / 2;
  const uint32_t high_depth = kSide == Side::kA ? matrix / 2 : matrix % 2;
  const bool by_outer = kAdjacent == Adjacent::kDepth;
  const uint32_t row =
      by_outer ? warp_outer + lane % 8 + 8 * high_outer : lane % 8 + 8 * high_depth;
  const uint32_t chunk = by_outer ? high_depth : warp_outer / kChunkElements + high_outer;
  return {.row_bytes = row * kRowChunks * kChunkBytes,
          .chunk_bytes = (chunk ^ SwizzleOf<kRowChunks>(row)) * kChunkBytes};
}

// Offset of fragment `index` of the warp, whose outer index begins 16 x index further, at step
// `step` of 16 terms of k. Moving by 16 along the rows does not change the swizzle; moving by 16
// along the adjacent index changes chunk bits that are zero in the lane's own chunk, because the
// warp's part begins at a multiple of its size and sizes are powers of two.
template <Adjacent kAdjacent, int kRowChunks>
constexpr uint32_t FragmentOffset(const LaneAddress& lane, uint32_t index, uint32_t step) {
  const uint32_t along_rows = kAdjacent == Adjacent::kDepth ? index : step;
  const uint32_t along_chunks = kAdjacent == Adjacent::kDepth ? step : index;
  return lane.row_bytes + along_rows * kFragmentOuter * kRowChunks * kChunkBytes +
         (lane.chunk_bytes ^ (along_chunks * 2 * kChunkBytes));
}

// Offset of an unfinished float32 sum, in bytes from the start of a warp's piece, whose rows have
// kColumns. Lanes store two neighbours of a row of mma's result and load 8 neighbours, 4 at a time.
// The two halves of each 8 neighbours are stored apart, at positions XORed with the row. The stores
// of half a warp thus touch each bank once, as do the loads of a quarter if a row has 64 columns.
template <int kColumns>
constexpr uint32_t FloatOffset(uint32_t row, uint32_t column) {
  WARPCALL_DEVICE_CHECK(column < kColumns, row, column);
  static_assert(kColumns == 32 || kColumns == 64);
  const uint32_t half = column / 4 % 2;
  const uint32_t place = column / 8 ^ half * 4 ^ (row & 7);
  const uint32_t chunk = kColumns == 64 ? half * 8 + place : place;
  return row * kColumns * sizeof(float) + chunk * kChunkBytes + column % 4 * sizeof(float);
}

constexpr bool IsPowerOfTwo(int value) { return value > 0 && (value & (value - 1)) == 0; }

}  // namespace warpcall::matmul
