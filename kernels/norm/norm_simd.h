// The tasks of the vectorised implementations of layernorm and rmsnorm, shared by the code of every
// instruction set.
#pragma once

#include <cstdint>

#include "kernels/norm/norm.h"
#include "kernels/norm/norm_range.h"
#include "proto/common/data_type.h"

namespace warpcall::norm {

// Elements of a row that one thread handles at a time: as floats, 32 KiB, two thirds of the
// first-level cache of a current server core.
inline constexpr int64_t kBlock = 8192;

// Elements that one thread handles between two looks at the stop flag: under a millisecond.
inline constexpr int64_t kElementsPerLook = 32 * kBlock;

// Statistics of a part of a row: its number of elements, their mean (0 where the row is not
// centred) and the sum of squares around it.
struct Partial {
  float count = 0;
  float mean = 0;
  float squares = 0;
};

// Merges parts of one row (Chan, Golub and LeVeque, 1979). With means of 0, squares are added.
inline Partial Merge(const Partial& a, const Partial& b) {
  const float count = a.count + b.count;
  const float share = b.count / count;
  const float distance = b.mean - a.mean;
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * a.count * share};
}

// Turns a row's elements into results: ((x x factor - mean) x reciprocal) x weight + bias.
struct Normalizer {
  float factor = 1;
  float mean = 0;
  float reciprocal = 0;
};

struct Tensors {
  const void* x;
  const void* weight;
  const void* bias;  // null where rows are not centred
  void* y;
  DataType data_type;
  View view;
  bool stream;  // results bypass the caches
  const StopFlag* stop;
};

// Rows [first, last).
struct RowRange {
  const Tensors& tensors;
  int64_t first;
  int64_t last;
};

// Normalises whole rows, one after the other, on the calling thread.
void NormalizeRows(const RowRange& rows);

// Elements [first, last), up to kBlock, of `row`. ReducePiece writes *partial.
struct RowPiece {
  const Tensors& tensors;
  int64_t row;
  int64_t first;
  int64_t last;
  Partial* partial;
  Normalizer* normalizer;
};

}  // namespace warpcall::norm
