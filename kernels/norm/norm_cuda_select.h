// Chooses the method and the compiled variant for a row length on a GPU: pure functions, no
// CUDA.
//
//   warp      4 to 32 lanes a row, in registers; no barrier
//   block     2 to 32 warps a row, in registers; two barriers
//   two_pass  read once for mean and squares, once more to be written
// Vectors are of 16 bytes where rows are a multiple of that, otherwise single elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/cuda/vector_width.h"

namespace warpcall::norm {

using cuda::kVectorBytes;
using cuda::WidestVector;
// Arguments of the kernels: rows of n elements, with their weights and biases.
template <typename T>
struct RowTensors {
  const T* x;
  const T* weight;
  const T* bias;  // null where rows are not centred
  T* y;
  int64_t rows;
  int64_t n;
  double epsilon;
};

// The number of threads that share a row, and the elements that each holds.
struct RowShape {
  int threads;
  int elements;      // per thread
  int resident = 1;  // blocks that a multiprocessor has room for

  constexpr int capacity() const { return threads * elements; }
  // Elements of the blocks that a multiprocessor has room for.
  constexpr int64_t at_once() const { return int64_t{resident} * capacity(); }
};

inline constexpr RowShape kWarpShapes[] = {{4, 8}, {8, 8}, {16, 8}, {32, 8}, {32, 16}};
inline constexpr int kWarpsPerBlock = 4;
// Elements that a lane has in flight, which short rows reach with several of them.
inline constexpr int kInFlight = 32;

// By bytes of an element. Memory is asked for the row as far ahead as there are blocks at once. Of
// 22 shapes these are the fastest on an H200 for layernorm with as many elements as make x 512 MiB
// in float32, where a copy takes 254 us, and 256 MiB in bfloat16, where it takes 128:
//
//   columns     2048   4096   8192
//   float32    255.2  255.2  258.5 us
//   bfloat16   130.1  130.1  132.1
inline constexpr RowShape kBlockShapesOf4[] = {{128, 8, 12}, {256, 8, 6},   {512, 8, 3},
                                               {512, 16, 2}, {1024, 16, 1}, {1024, 32, 1}};
inline constexpr RowShape kBlockShapesOf2[] = {{64, 16, 16}, {128, 16, 8}, {128, 32, 6},
                                               {256, 32, 4}, {512, 32, 2}, {1024, 32, 1}};
inline constexpr int kBlockShapeCount = std::size(kBlockShapesOf4);
static_assert(kBlockShapeCount == std::size(kBlockShapesOf2));

using BlockShapes = RowShape[kBlockShapeCount];
constexpr const BlockShapes& BlockShapesOf(size_t element_bytes) {
  return element_bytes == sizeof(float) ? kBlockShapesOf4 : kBlockShapesOf2;
}

// Bytes of the blocks that a multiprocessor has room for up to which they load through L1 and store
// ordinarily. With more they load past L1, and their stores leave L2 first. On an H200 layernorm of
// 32768x4096 in float32 takes 255.2 us with 48 KiB, and 258.7 past L1; with 64 KiB 266.1 and 257.1.
inline constexpr int64_t kL1BytesAtOnce = 48 << 10;

template <size_t kCount>
constexpr int64_t CapacityOf(const RowShape (&shapes)[kCount]) {
  return shapes[kCount - 1].capacity();
}

// The first of `shapes` with room for n; their number when there is none.
template <size_t kCount>
constexpr int FirstShapeFor(const RowShape (&shapes)[kCount], int64_t n) {
  int i = 0;
  while (i < static_cast<int>(kCount) && shapes[i].capacity() < n) ++i;
  return i;
}

// Two variants for each shape, of which the second takes whole vectors.
constexpr int NumberOf(int shape, int64_t n, size_t element_bytes) {
  return 2 * shape + (n % WidestVector(element_bytes) == 0 ? 1 : 0);
}

inline constexpr int kTwoPassThreads = 512;

}  // namespace warpcall::norm
