#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check/cases.h"
#include "kernels/matmul/matmul.h"
#include "proto/common/dispatch.h"

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

// Sizes on both sides of where the vectorised implementation changes its way. Its register tile is
// 12 or 6 rows by 32, 16 or 2 columns. It cuts k at 256 and 512, tasks at 240 rows, and blocks at
// 1024 columns and, for 16-bit types, 512 rows. Few rows are cut into strips of 64 and 512 columns,
// at 8 and 24 rows. Products of under 16, 8 or 4 columns are strips from k = 128, 64 or 32 on, and
// cut k at 2048, 1024 or 512.
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
    {23, 1031, 577},
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
constexpr Size kLongSums[] = {{1, 20011, 3}, {3, 4099, 5},  {8, 4099, 11}, {17, 1537, 35},
                              {1, 4099, 1},  {24, 4099, 7}, {19, 131, 15}};

// Sizes for precision=tf32: within one tile and over several, k a multiple of 8 and 32 and not.
constexpr Size kTf32Sizes[] = {{64, 64, 64},   {1, 7, 1},     {13, 257, 49}, {128, 64, 256},
                               {129, 65, 257}, {264, 40, 72}, {16, 8192, 24}};

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
// oneDNN's bfloat16 with AMX got the last size wrong if b was transposed.
constexpr Size kBatchSizes[] = {{5, 7, 6}, {1, 19, 21}, {14, 8, 1}, {13, 3, 55}};

// Magnitudes of the terms of one element.
struct Terms {
  double sum = 0;        // sum |a b|
  double finite = 0;     // the part of terms that are numbers
  double subnormal = 0;  // the part of terms with a subnormal a or b
};

Case WithTf32(Case of) {
  of.name += "_tf32";
  of.attributes.push_back({"precision", std::string("tf32")});
  of.data_types = {DataType::kFloat32};
  return of;
}

// float32 sums of k products, in any order, are off by at most k u x sum|a b| (N. Higham, Accuracy
// and Stability of Numerical Algorithms, 3.1, u = 2^-24). Because rounding errors are as good as
// independent, they are off by at most lambda sqrt(k) u x sum|a b|, except with a probability of 2k
// exp(-lambda^2 / 2) (N. Higham, T. Mary, "A new approach to probabilistic rounding error
// analysis", 2019): lambda = 6 makes that 3e-8 k. (Tensor cores truncate instead, once for 8 or 16
// terms: still within it where the signs of terms vary.) Products below 2^-126 lose up to 2^-150
// each. tf32 keeps 10 fraction bits of a and of b: rounded they lose 2^-11 of themselves each,
// truncated 2^-10, and subnormal ones up to all. If partial sums may leave float32's range, the
// result depends on their order.
ElementError ErrorOf(const Terms& terms, double k, bool tf32) {
  constexpr double kOperands = 2 * 0x1p-10 + 0x1p-20;
  constexpr double kPartialSumMax = 0x1.ffp127;  // a rounding error or more below the largest
  if (k > 1 && terms.finite > kPartialSumMax)
    return {.arithmetic = INFINITY, .subnormal_inputs = terms.subnormal};
  const double sum = std::min(k, 6 * std::sqrt(k)) * 0x1p-24;
  return {.arithmetic = (sum + (tf32 ? kOperands : 0)) * terms.sum + (tf32 ? terms.subnormal : 0) +
                        k * 0x1p-150,
          .subnormal_inputs = terms.subnormal};
}

bool IsSubnormal(double value) { return value != 0 && std::fabs(value) < 0x1p-126; }

// Rows of c lie side by side in a slice; `row` counts over all matrices.
template <typename T>
void TermsOfRow(const Shape& shape, const Operands& inputs, int64_t row, absl::Span<Terms> terms) {
  const Offsets at = shape.BatchOffsets(row / shape.m);
  const T* const a = static_cast<const T*>(inputs.inputs[0]);  // null when k is 0, as b is
  const T* const b = static_cast<const T*>(inputs.inputs[1]);
  const int64_t a_row = at.a + row % shape.m * shape.a_row_stride;
  for (int64_t p = 0; p < shape.k; ++p) {
    const double x = std::fabs(ToFloat(a[a_row + p * shape.a_column_stride]));
    const T* const y = b + at.b + p * shape.b_row_stride;
    for (int64_t j = 0; j < shape.n; ++j) {
      const double z = std::fabs(ToFloat(y[j * shape.b_column_stride]));
      terms[j].sum += x * z;
      if (std::isfinite(x * z)) terms[j].finite += x * z;
      if (IsSubnormal(x) || IsSubnormal(z)) terms[j].subnormal += x * z;
    }
  }
}

std::vector<ElementError> Errors(const Problem& problem, const Operands& inputs, int64_t index,
                                 absl::Span<const double> truth) {
  const Shape shape = DecodeShape(problem);
  const bool tf32 = std::get<std::string>(problem.attributes[kPrecision]) == "tf32";
  const int64_t first = kDefinition.slice(problem, index).first / shape.n;
  std::vector<Terms> terms(truth.size());
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    for (size_t begin = 0; begin < truth.size(); begin += static_cast<size_t>(shape.n))
      TermsOfRow<T>(shape, inputs, first + static_cast<int64_t>(begin) / shape.n,
                    absl::MakeSpan(terms).subspan(begin, static_cast<size_t>(shape.n)));
  });
  std::vector<ElementError> errors;
  errors.reserve(terms.size());
  for (const Terms& of_element : terms)
    errors.push_back(ErrorOf(of_element, static_cast<double>(shape.k), tf32));
  return errors;
}

constexpr char kTolerance[] =
    "min(k, 6 sqrt(k)) x 2^-24 sum|a b|, with tf32 2^-9 sum|a b| and all terms with a subnormal "
    "factor more; and half a unit in the last place";

std::vector<Allowance> Allowances() {
  return {{.row = "onednn_matmul",
           .reason = "The processor's dot products of bfloat16 take subnormal inputs, and give "
                     "subnormal sums, as 0 (Intel SDM, VDPBF16PS).",
           .data_types = {DataType::kBFloat16},
           .zero_below = 0x1p-126,
           .flushes_subnormal_inputs = true}};
}

// Sizes of products that are normal numbers although one factor is subnormal: few rows, whole and
// partial tiles, one slice of k and several.
constexpr Size kSubnormalSizes[] = {{1, 300, 1},   {3, 1, 33},    {1, 513, 65}, {8, 1024, 40},
                                    {24, 520, 66}, {13, 257, 49}, {64, 64, 64}, {129, 600, 70}};

Case OfSubnormals(const Size& size, const Transpose& transpose, bool a_is_subnormal) {
  Case result = Multiplication(size, transpose, {}, Fill::kNormal);
  absl::StrAppend(&result.name, a_is_subnormal ? "_subnormal_a" : "_subnormal_b");
  result.fill = a_is_subnormal ? Fill::kSubnormal : Fill::kLarge;
  result.later_fills = {a_is_subnormal ? Fill::kLarge : Fill::kSubnormal};
  return result;
}

// Large enough for whole tiles of every implementation, AMX's among them, and for steps in k.
constexpr Size kQuickSize = {64, 64, 64};

// Implementations that search for the best algorithm in each case run only the first four.
std::vector<Case> QuickCases() {
  std::vector<Case> cases;
  const auto add = [&](const Size& size, const Transpose& transpose, const Batches& batches) {
    cases.push_back(Multiplication(size, transpose, batches, Fill::kNormal));
  };
  add(kQuickSize, {false, false}, {});
  add(kQuickSize, {true, true}, {});
  add({13, 3, 55}, {false, true}, {{3}, {3}});
  add({65, 33, 50}, {false, false}, {});
  add(kQuickSize, {true, false}, {});
  add(kQuickSize, {false, true}, {});
  add({1, 257, 65}, {false, false}, {});
  add({13, 3, 55}, {false, false}, {{2, 1}, {3}});
  cases.push_back(Multiplication({3, 1, 33}, {false, false}, {}, Fill::kSpecial));
  cases.push_back(WithTf32(Multiplication(kQuickSize, {false, false}, {}, Fill::kNormal)));
  return cases;
}

}  // namespace

OpCases Cases() {
  OpCases result{
      .cases = {}, .errors = Errors, .tolerance = kTolerance, .allowances = Allowances()};
  for (const Transpose& transpose : kTransposes) {
    for (const Size& size : kSizes)
      result.cases.push_back(Multiplication(size, transpose, {}, Fill::kNormal));
    for (const Size& size : kLongSums)
      result.cases.push_back(Multiplication(size, transpose, {}, Fill::kNormal));
    for (const Batches& batches : BatchCases())
      for (const Size& size : kBatchSizes)
        result.cases.push_back(Multiplication(size, transpose, batches, Fill::kNormal));
    for (const Size& size : kSubnormalSizes)
      for (const bool a_is_subnormal : {true, false})
        result.cases.push_back(OfSubnormals(size, transpose, a_is_subnormal));
    for (const Size& size : kTf32Sizes)
      result.cases.push_back(WithTf32(Multiplication(size, transpose, {}, Fill::kNormal)));
    result.cases.push_back(
        WithTf32(Multiplication({14, 8, 72}, transpose, {{2, 1}, {3}}, Fill::kNormal)));
  }
  for (const Size& size : kSingleTerms)
    for (const Fill fill : {Fill::kWide, Fill::kSpecial})
      result.cases.push_back(Multiplication(size, {false, false}, {}, fill));
  result.quick = QuickCases();
  result.sized = [](int64_t elements) -> std::vector<Dims> {
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(elements)));
    return {{side, side}, {side, side}};
  };
  return result;
}

}  // namespace warpcall::matmul
