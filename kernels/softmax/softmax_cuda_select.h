// Chooses the method and the compiled variant for a row length on a GPU: pure functions, no CUDA,
// so that every length can be tested without a GPU.
//
// Lengths along the last axis fall into three ranges with a row in registers, and the rest:
//   subwarp   1 to 16 lanes a row, several rows a warp; vectors as wide as n allows
//   warp      32 lanes a row, no barrier
//   block     2 to 32 warps a row, one barrier
//   two_pass  read once for the maximum and the sum, once more to be written
// From warp on, rows whose length is no multiple of a 16-byte vector are taken as windows: the
// aligned vectors that cover the row, of which the outer ones are partly the neighbours'. So the
// memory is accessed in 16 bytes at a time for every n.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "kernels/common/saturate.h"
#include "kernels/cuda/vector_width.h"
#include "proto/common/check.h"

namespace warpcall::softmax {

using cuda::kVectorBytes;
using cuda::WidestVector;
inline constexpr int kWarpThreads = 32;

// Arguments of kernels for contiguous rows: a tensor [rows, n].
template <typename T>
struct RowTensor {
  const T* x;
  T* y;
  int64_t rows;
  int64_t n;
};

// Elements of a row that one thread may hold, as float32 each: with what the arithmetic needs
// beside them, 64 leave room for 20 warps in the 65536 registers of a multiprocessor.
inline constexpr int kHeldElementsMax = 64;

enum class RowMethod : uint8_t { kSubwarp, kWarp, kBlock, kTwoPass };

// The number of threads that share a row, and the elements that each holds.
struct RowShape {
  int threads;
  int elements;      // per thread
  int resident = 1;  // blocks that a multiprocessor is to have room for
  int ahead = 0;     // prefetch distance, in rows per multiprocessor; 0: no prefetch

  constexpr int capacity() const { return threads * elements; }
  // Elements of the blocks that a multiprocessor has room for.
  constexpr int64_t at_once() const { return int64_t{resident} * capacity(); }
};

// subwarp: here `elements` counts vectors, of a width that divides n.
inline constexpr RowShape kSubwarpShapes[] = {{1, 1},  {2, 1},  {4, 1},  {8, 1},
                                              {16, 1}, {16, 2}, {16, 4}, {16, 8}};
inline constexpr int kSubwarpElementsMax = 128;
inline constexpr int kSubwarpWidths[] = {8, 4, 2, 1};

// subwarp: a variant that its kernels are compiled for.
struct SubwarpVariant {
  int width;
  int shape;  // index into kSubwarpShapes

  constexpr int vectors() const { return kSubwarpShapes[shape].capacity(); }
  constexpr bool operator==(const SubwarpVariant&) const = default;
};

// Returns true if some row takes the variant with the widest vector that divides the row. Rows of
// narrower vectors have an odd number of them, for which two lanes of one vector are never best.
constexpr bool IsUsed(const SubwarpVariant& variant, int widest) {
  return variant.width <= widest && variant.vectors() * variant.width <= kSubwarpElementsMax &&
         (variant.width == widest || variant.vectors() != 2);
}

// All variants for vectors of at most `widest` elements. A variant's number is its index.
struct SubwarpTable {
  SubwarpVariant variants[std::size(kSubwarpWidths) * std::size(kSubwarpShapes)];
  int count;

  // REQUIRES: `variant` is in the table.
  constexpr int NumberOf(const SubwarpVariant& variant) const {
    int number = 0;
    for (; variants[number] != variant; ++number)
      WARPCALL_CHECK(number + 1 < count, count, variant.width, variant.shape);
    return number;
  }
};

constexpr SubwarpTable SubwarpVariantsFor(int widest) {
  SubwarpTable table = {};
  for (const int width : kSubwarpWidths) {
    for (int shape = 0; shape < static_cast<int>(std::size(kSubwarpShapes)); ++shape) {
      if (IsUsed({width, shape}, widest)) table.variants[table.count++] = {width, shape};
    }
  }
  return table;
}

inline constexpr RowShape kWarpShapes[] = {{32, 8}, {32, 16}, {32, 24}};

// Bytes of the blocks that a multiprocessor has room for up to which their loads pass through L1.
// On an H200 softmax of 4096 columns in float32 takes 256 us so with 64 KiB, and 263 past L1; with
// 128 KiB 282 and 261.
inline constexpr int64_t kL1BytesAtOnce = 64 << 10;

// By bytes of an element, as measured on an H200 for 8 to 32 elements a thread, from no row ahead
// to twice as many as are resident: 96 to 98 % of a copy from 1024 columns on.
inline constexpr RowShape kBlockShapesOf4[] = {{64, 16, 16, 16}, {64, 24, 16, 16}, {128, 16, 8, 8},
                                               {128, 24, 8},     {256, 16, 4, 4},  {256, 24, 4, 4},
                                               {512, 16, 2, 2},  {512, 24, 2, 2},  {1024, 16, 1, 1},
                                               {1024, 24, 1, 1}, {1024, 32, 1, 1}};
inline constexpr RowShape kBlockShapesOf2[] = {
    {64, 16, 20, 20}, {64, 24, 16},     {128, 16, 10, 10}, {128, 24, 8},
    {256, 16, 5, 10}, {256, 24, 4, 8},  {512, 16, 3, 3},   {512, 24, 2, 2},
    {512, 32, 2, 2},  {1024, 24, 1, 1}, {1024, 32, 1, 1}};
inline constexpr int kBlockShapeCount = std::size(kBlockShapesOf4);
static_assert(kBlockShapeCount == std::size(kBlockShapesOf2));

constexpr const RowShape (&BlockShapesOf(size_t element_bytes))[kBlockShapeCount] {
  return element_bytes == sizeof(float) ? kBlockShapesOf4 : kBlockShapesOf2;
}

struct RowPlan {
  RowMethod method;
  int width;     // elements of a vector
  int shape;     // index into the method's table; 0 for two_pass
  bool aligned;  // every row starts at a vector and ends with one
};

// The largest power of two up to `limit` (a power of two) that divides n >= 1.
constexpr int WidthThatDivides(int64_t n, int limit) {
  WARPCALL_DCHECK(n >= 1 && limit > 0 && (limit & (limit - 1)) == 0, n, limit);
  return static_cast<int>(std::min<int64_t>(n & -n, limit));
}

// Vectors of `width` that a row of n covers at most, wherever it starts. Rows start at multiples of
// n, hence at multiples of what n and the width have in common.
constexpr int64_t WindowVectorsMax(int64_t n, int width) {
  const int shift_max = width - WidthThatDivides(n, width);
  return CeilDivide(n + shift_max, width);
}

// The first of `shapes` with room for `units`; their number when there is none.
template <size_t kCount>
constexpr int FirstShapeFor(const RowShape (&shapes)[kCount], int64_t units) {
  int i = 0;
  while (i < static_cast<int>(kCount) && shapes[i].capacity() < units) ++i;
  return i;
}

// The plan for rows of n >= 1 contiguous elements, the first of which is aligned to a vector.
constexpr RowPlan PlanRow(int64_t n, size_t element_bytes) {
  WARPCALL_DCHECK(n >= 1, n);
  const int widest = WidestVector(element_bytes);
  if (n <= kSubwarpElementsMax) {
    const int width = WidthThatDivides(n, widest);
    return {RowMethod::kSubwarp, width, FirstShapeFor(kSubwarpShapes, n / width), true};
  }
  const bool aligned = n % widest == 0;
  const int64_t window = SaturatingMultiply(WindowVectorsMax(n, widest), widest);
  const int warp = FirstShapeFor(kWarpShapes, window);
  if (warp < static_cast<int>(std::size(kWarpShapes)))
    return {RowMethod::kWarp, widest, warp, aligned};
  const int block = FirstShapeFor(BlockShapesOf(element_bytes), window);
  if (block < kBlockShapeCount) return {RowMethod::kBlock, widest, block, aligned};
  return {RowMethod::kTwoPass, widest, 0, aligned};
}

// The lengths that a method takes when they are multiples of a vector. Others may be up to a vector
// longer as windows.
struct LengthRange {
  int64_t shortest;
  int64_t longest;
};

constexpr LengthRange LengthsOf(RowMethod method) {
  constexpr int kWarpMax = kWarpShapes[std::size(kWarpShapes) - 1].capacity();
  constexpr int kBlockMax = kBlockShapesOf4[kBlockShapeCount - 1].capacity();
  static_assert(kBlockMax == kBlockShapesOf2[kBlockShapeCount - 1].capacity());
  switch (method) {
    case RowMethod::kSubwarp:
      return {1, kSubwarpElementsMax};
    case RowMethod::kWarp:
      return {kSubwarpElementsMax + 1, kWarpMax};
    case RowMethod::kBlock:
      return {kWarpMax + 1, kBlockMax};
    case RowMethod::kTwoPass:
      break;
  }
  return {kBlockMax + 1, std::numeric_limits<int64_t>::max()};
}

// warp and block: two variants for each shape; the second is for aligned rows.
constexpr int WindowVariantOf(const RowPlan& plan) {
  return 2 * plan.shape + (plan.aligned ? 1 : 0);
}

// Returns true if rows of n fit the variant of `shape`, wherever they start.
constexpr bool FitsWindow(int64_t n, const RowShape& shape, int width, bool aligned) {
  return (!aligned || n % width == 0) && WindowVectorsMax(n, width) <= shape.capacity() / width;
}

// two_pass: a row is cut into chunks of whole vectors, a block each.
inline constexpr int kTwoPassThreads = 512;

struct ChunkPlan {
  int64_t chunks_per_row;  // 1: one kernel, whose block reads its row twice
  int64_t chunk_vectors;
};

// Indices within a chunk are 32 bits wide.
inline constexpr int64_t kChunkVectorsMax = int64_t{1} << 26;
static_assert(kChunkVectorsMax * WidestVector(2) < INT32_MAX - kTwoPassThreads * WidestVector(2));

// From twice as many rows as multiprocessors on, rows alone keep the device busy, and a row that
// one block reads twice is still in the second-level cache the second time, as rows in flight are
// few. Fewer rows are cut so that there are two blocks for each multiprocessor, but into chunks of
// two vectors a thread at least, below which a block costs more to start than it moves.
constexpr ChunkPlan PlanChunks(int64_t rows, int64_t n, size_t element_bytes,
                               int32_t multiprocessors) {
  WARPCALL_DCHECK(rows >= 1 && n >= 1, rows, n);
  const int64_t vectors = WindowVectorsMax(n, WidestVector(element_bytes));
  const int64_t blocks = 2 * std::max<int64_t>(1, multiprocessors);
  const int64_t wanted = rows >= blocks ? 1 : CeilDivide(blocks, rows);
  const int64_t useful = CeilDivide(vectors, 2 * kTwoPassThreads);
  const int64_t chunks = std::max(std::min(wanted, useful), CeilDivide(vectors, kChunkVectorsMax));
  // The last chunk may be short, the others have whole rounds of the block.
  const int64_t chunk_vectors =
      CeilDivide(CeilDivide(vectors, chunks), kTwoPassThreads) * kTwoPassThreads;
  return {CeilDivide(vectors, chunk_vectors), chunk_vectors};
}

// Elements that a thread of two_pass takes at a time, 64 bytes of two bytes each.
inline constexpr int kTwoPassInFlight = 32;

// Vectors that its block takes at a time.
constexpr int TwoPassStepVectors(size_t element_bytes) {
  return kTwoPassInFlight / WidestVector(element_bytes) * kTwoPassThreads;
}

// The ways that two_pass can go.
struct TwoPassVariant {
  bool chunked;  // two kernels, rows in chunks of a block each; otherwise one, a block a row
  bool aligned;
  bool several_steps;  // that a block takes to pass over its chunk or row
};
inline constexpr int kTwoPassVariants = 8;

constexpr TwoPassVariant TwoPassVariantAt(int number) {
  WARPCALL_DCHECK(number >= 0 && number < kTwoPassVariants, number);
  return {number / 4 % 2 == 1, number / 2 % 2 == 1, number % 2 == 1};
}
constexpr int NumberOf(const TwoPassVariant& variant) {
  return (variant.chunked ? 4 : 0) + (variant.aligned ? 2 : 0) + (variant.several_steps ? 1 : 0);
}

constexpr TwoPassVariant TwoPassVariantOf(const ChunkPlan& plan, int64_t n, size_t element_bytes) {
  const int width = WidestVector(element_bytes);
  const bool chunked = plan.chunks_per_row > 1;
  const int64_t vectors = chunked ? plan.chunk_vectors : WindowVectorsMax(n, width);
  return {chunked, n % width == 0, vectors > TwoPassStepVectors(element_bytes)};
}

// Chunks as a variant has them, of nearly half a row or as near as the variant allows; no chunks
// where it cannot take rows of n.
constexpr ChunkPlan ChunksFor(const TwoPassVariant& variant, int64_t n, size_t element_bytes) {
  constexpr ChunkPlan kImpossible = {0, 0};
  const int width = WidestVector(element_bytes);
  const int64_t vectors = WindowVectorsMax(n, width);
  const int64_t step = TwoPassStepVectors(element_bytes);
  if (variant.aligned && n % width != 0) return kImpossible;
  if (!variant.chunked) {
    if (vectors > kChunkVectorsMax || variant.several_steps != (vectors > step)) return kImpossible;
    return {1, CeilDivide(vectors, kTwoPassThreads) * kTwoPassThreads};
  }
  const int64_t half = CeilDivide(CeilDivide(vectors, 2), kTwoPassThreads) * kTwoPassThreads;
  const int64_t chunk = variant.several_steps
                            ? std::clamp(half, step + kTwoPassThreads, kChunkVectorsMax)
                            : std::min(half, step);
  if (chunk >= vectors) return kImpossible;
  return {CeilDivide(vectors, chunk), chunk};
}

}  // namespace warpcall::softmax
