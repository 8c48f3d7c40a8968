#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check/cases.h"
#include "kernels/matmul/matmul.h"

namespace warpcall::matmul {
namespace {

struct Size {
  int64_t m;
  int64_t k;
  int64_t n;
};

struct Transpose {
  bool a;
  bool b;
};
constexpr Transpose kTransposes[] = {{false, false}, {true, false}, {false, true}, {true, true}};

Dims Matrix(int64_t rows, int64_t columns, bool transpose, Dims batch = {}) {
  batch.push_back(transpose ? columns : rows);
  batch.push_back(transpose ? rows : columns);
  return batch;
}

struct Batches {
  Dims a;
  Dims b;
};

Case Multiplication(const Size& size, const Transpose& transpose, const Batches& batches,
                    Fill fill) {
  const char* const fills[] = {"normal", "wide", "special"};
  Case result;
  result.shapes = {Matrix(size.m, size.k, transpose.a, batches.a),
                   Matrix(size.k, size.n, transpose.b, batches.b)};
  result.attributes = {{"transpose_a", transpose.a}, {"transpose_b", transpose.b}};
  result.fill = fill;
  result.name =
      absl::StrCat(transpose.a ? "at" : "a", "_", transpose.b ? "bt" : "b", "_",
                   absl::StrJoin(result.shapes[0], "x"), "_by_",
                   absl::StrJoin(result.shapes[1], "x"), "_", fills[static_cast<int>(fill)]);
  return result;
}

// The vectorised row's register tile is 12 or 6 rows by 32, 16 or 2 columns, k is cut at 256 and
// 512, tasks at 240 rows, strips of few rows at 64 and 512 columns, blocks at 1024 columns and, for
// 16-bit types, 512 rows.
constexpr Size kSizes[] = {
    {0, 3, 4},
    {3, 0, 4},
    {3, 4, 0},
    {0, 0, 0},
    {1, 0, 1},
    {1, 1, 1},
    {1, 7, 1},
    {1, 1, 9},
    {9, 1, 1},
    {2, 3, 2},
    {1, 513, 65},
    {1, 37, 1030},
    {1030, 37, 1},
    {2, 511, 63},
    {3, 515, 66},
    {4, 64, 513},
    {5, 9, 31},
    {6, 16, 32},
    {7, 17, 33},
    {11, 31, 15},
    {12, 32, 16},
    {13, 33, 17},
    {12, 255, 32},
    {13, 257, 49},
    {24, 256, 64},
    {25, 13, 1025},
    {53, 59, 61},
    {239, 5, 33},
    {241, 7, 31},
    {513, 19, 47},
    // Tiles of 64, 128 and 256 on GPUs, whole and with an element more or less, and steps in k of
    // 16 to 64; leading dimensions that are, and are not, multiples of 16 bytes.
    {128, 64, 128},
    {256, 96, 128},
    {127, 31, 129},
    {129, 65, 257},
    {64, 1024, 72},
    {264, 40, 136},
    {1, 1024, 256},
    {256, 520, 1},
    {16, 512, 200},
};

// Rounding errors add up and a lost term weighs least where k is long.
constexpr Size kLongSums[] = {{1, 20011, 3}, {3, 4099, 5}, {17, 1537, 35}};

// Values over the whole range, infinities and NaN: with one term per sum nothing overflows on the
// way, so that every row has to meet the reference.
constexpr Size kSingleTerms[] = {{1, 1, 70}, {3, 1, 33}, {13, 1, 37}, {49, 1, 2}, {40, 1, 65}};

const std::vector<Batches>& BatchCases() {
  static const auto& cases = *new std::vector<Batches>{
      {{3}, {3}},
      {{3}, {}},
      {{}, {3}},
      {{1}, {3}},
      {{2, 3}, {2, 3}},
      {{2, 1}, {3}},
      {{2, 1, 2}, {1, 3, 1}},
      {{2, 3}, {2, 1}},
      {{3, 2}, {1, 2}},
      {{0}, {1}},
      {{2, 0}, {}},
      {{60}, {60}},
      {{2, 1, 2, 1, 3, 1}, {1, 2, 2, 2, 1, 1}},
      {{2, 1, 2, 2, 1, 2}, {}},
      {{}, {2, 2, 1, 2, 1, 2}},
  };
  return cases;
}
// The last: oneDNN's bfloat16 with AMX got it wrong, b transposed.
constexpr Size kBatchSizes[] = {{5, 7, 6}, {1, 19, 21}, {14, 8, 1}, {13, 3, 55}};

double UnitRoundoff(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 0x1p-24;
    case DataType::kFloat16:
      return 0x1p-11;
    case DataType::kBFloat16:
      return 0x1p-8;
  }
  return 0;
}

double SmallestSubnormal(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 0x1p-149;
    case DataType::kFloat16:
      return 0x1p-24;
    case DataType::kBFloat16:
      return 0x1p-133;
  }
  return 0;
}

// Sum: float32 sums of k products, in any order, are off by at most k u x sum|a b| (N. Higham,
// Accuracy and Stability of Numerical Algorithms, 3.1, u = 2^-24) and, rounding errors being as
// good as independent, by lambda sqrt(k) u x sum|a b| but for a probability of 2k exp(-lambda^2 /
// 2) (N. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", 2019): lambda
// = 6 makes that 3e-8 k. sum|a b| is at most k x magnitude^2. One product is rounded once, and that
// relative to itself. Output: the sum and the truth are each rounded to the type, by at most its
// unit roundoff relative to themselves and half its smallest subnormal. bfloat16: processors' dot
// products of this type take subnormal inputs, below 2^-126, as zero.
Tolerance MatmulTolerance(const Problem& problem, double magnitude) {
  const DataType type = problem.outputs[0].data_type;
  const bool transpose_a = std::get<bool>(problem.attributes[kTransposeA]);
  const Dims& a = problem.inputs[0].dims;
  const double k = static_cast<double>(a[a.size() - (transpose_a ? 2 : 1)]);
  const double u = UnitRoundoff(DataType::kFloat32);
  Tolerance tolerance{.absolute = SmallestSubnormal(type),
                      .relative = 2 * UnitRoundoff(type) * (1 + 2 * UnitRoundoff(type))};
  if (k > 1) {
    tolerance.absolute += std::min(k, 6 * std::sqrt(k)) * u * k * magnitude * magnitude;
  } else {
    tolerance.relative += u;
  }
  if (type == DataType::kBFloat16) tolerance.absolute += k * 0x1p-126 * magnitude;
  return tolerance;
}

}  // namespace

OpCases Cases() {
  OpCases result{.cases = {}, .tolerance = MatmulTolerance};
  for (const Transpose& transpose : kTransposes) {
    for (const Size& size : kSizes)
      result.cases.push_back(Multiplication(size, transpose, {}, Fill::kNormal));
    for (const Size& size : kLongSums)
      result.cases.push_back(Multiplication(size, transpose, {}, Fill::kNormal));
    for (const Batches& batches : BatchCases())
      for (const Size& size : kBatchSizes)
        result.cases.push_back(Multiplication(size, transpose, batches, Fill::kNormal));
  }
  for (const Size& size : kSingleTerms)
    for (const Fill fill : {Fill::kWide, Fill::kSpecial})
      result.cases.push_back(Multiplication(size, {false, false}, {}, fill));
  return result;
}

}  // namespace warpcall::matmul
