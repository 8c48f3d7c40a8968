// The tasks of softmax's vectorised implementations, shared by the code of every instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/softmax/softmax.h"
#include "proto/common/data_type.h"

namespace warpcall::softmax {

// Elements of a row that one thread handles at a time: as floats, 32 KiB, two thirds of the
// first-level cache of a current server core.
inline constexpr int64_t kBlock = 8192;

// Terms that one lane of a vector adds one after the other.
inline constexpr int64_t kTermsPerChain = 128;

// Elements that one thread handles between two looks at the stop flag: under a millisecond.
inline constexpr int64_t kElementsPerLook = 32 * kBlock;

// Columns of a strided problem that one thread handles at a time: 256 bytes of float32, four cache
// lines.
inline constexpr int64_t kColumns = 64;

// Statistics of a part of a row: its maximum (at least the lowest finite float) and sum(exp(x -
// maximum)). Starting at a finite maximum makes rows of only -infinity come out right without a
// branch: their sum is 0, and 0 x (1 / 0) is NaN.
struct Partial {
  float max;
  float sum;
};

inline constexpr float kLowest = std::numeric_limits<float>::lowest();

inline Partial Merge(Partial a, Partial b) {
  const float max = std::max(a.max, b.max);
  return {max, a.sum * std::exp(a.max - max) + b.sum * std::exp(b.max - max)};
}

struct Tensors {
  const void* x;
  void* y;
  DataType data_type;
  View view;
  bool stream;  // results bypass the caches
  const StopFlag* stop;
};

// Rows [first, last) of a problem whose axis is the last one.
struct RowRange {
  Tensors tensors;
  int64_t first;
  int64_t last;
};

// Elements [first, last) of one such row. The first pass writes `partial`; the second reads it, and
// it is then that of the whole row.
struct RowPiece {
  Tensors tensors;
  int64_t row;
  int64_t first;
  int64_t last;
  Partial* partial;
};

// Columns [first, last), last - first <= kColumns, of slab `outer`.
struct ColumnRange {
  Tensors tensors;
  int64_t outer;
  int64_t first;
  int64_t last;
};

}  // namespace warpcall::softmax
