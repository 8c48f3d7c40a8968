#include <cstdint>
#include <string>

#include "kernels/matmul/matmul.h"
#include "tests/kernels/variant_problems.h"

namespace warpcall::testing {
namespace {

struct Size {
  int64_t m;
  int64_t k;
  int64_t n;
};

// Tiles of GPUs have 64, 128 or 256 rows and columns and take 8 to 64 terms of k at a time. Whole
// vectors along every operand's rows, whichever way it lies:
constexpr Size kInVectors[] = {
    {8, 8, 8},      {64, 16, 64},   {64, 64, 64},   {128, 64, 256}, {120, 72, 248},
    {136, 56, 264}, {136, 200, 72}, {256, 136, 48}, {264, 24, 520}, {584, 40, 72},
};
// Off the tiles: a row or column less or more than tiles, a term less or more than their steps.
constexpr Size kOdd[] = {
    {2, 3, 2},      {63, 17, 65},  {65, 1, 63},   {127, 63, 255}, {129, 65, 257},
    {257, 129, 33}, {581, 33, 70}, {66, 31, 130}, {5, 7, 521},
};
// Sums that are cut, with runs of equal length and not.
constexpr Size kLongSums[] = {{64, 1024, 64}, {40, 1032, 136}, {16, 2056, 136},
                              {65, 1025, 63}, {17, 2049, 131}, {65, 515, 257}};
// 16 divides all sizes, which Triton's kernels are compiled for: within a tile, and more than one
// of the largest.
constexpr Size kSixteens[] = {{16, 16, 16}, {48, 80, 112}, {272, 336, 528}};
// A matrix times a vector.
constexpr Size kVectors[] = {{1, 513, 65},   {1, 2048, 72}, {300, 1030, 1}, {304, 4096, 1},
                             {1, 5000, 257}, {1, 1024, 8},  {1, 8192, 1},   {33, 300, 1},
                             {264, 264, 1},  {1, 264, 264}, {1, 7, 300},    {1, 8, 304}};

struct Batches {
  Dims a;
  Dims b;
};

std::vector<Batches> BatchCases() {
  return {{{3}, {3}}, {{3}, {}}, {{}, {3}}, {{2, 1}, {1, 3}}, {{5}, {5}}};
}

class Problems {
 public:
  explicit Problems(DataType type) : type_(type) {}

  void Add(const Size& size, const Batches& batches, const char* precision) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        std::vector<NamedAttribute> attributes = {{"transpose_a", transpose_a},
                                                  {"transpose_b", transpose_b}};
        if (precision != nullptr) attributes.push_back({"precision", std::string(precision)});
        problems_.push_back(NameProblem(MatmulOp(),
                                        {Matrix(size.m, size.k, transpose_a, batches.a),
                                         Matrix(size.k, size.n, transpose_b, batches.b)},
                                        attributes));
      }
    }
  }

  std::vector<VariantProblem> Take() { return std::move(problems_); }

 private:
  TensorSpec Matrix(int64_t rows, int64_t columns, bool transpose, Dims batch) const {
    batch.push_back(transpose ? columns : rows);
    batch.push_back(transpose ? rows : columns);
    return {type_, batch};
  }

  const DataType type_;
  std::vector<VariantProblem> problems_;
};

}  // namespace

std::vector<VariantProblem> MatmulVariantProblems(DataType type) {
  Problems problems(type);
  for (const Size& size : kInVectors) problems.Add(size, {}, nullptr);
  for (const Size& size : kOdd) problems.Add(size, {}, nullptr);
  for (const Size& size : kLongSums) problems.Add(size, {}, nullptr);
  for (const Size& size : kVectors) problems.Add(size, {}, nullptr);
  for (const Size& size : kSixteens) problems.Add(size, {}, nullptr);
  problems.Add({48, 80, 144}, {{3}, {3}}, nullptr);
  if (type == DataType::kFloat32) {
    for (const Size& size : kSixteens) problems.Add(size, {}, "tf32");
    for (const Size& size : kOdd) problems.Add(size, {}, "tf32");
  }
  for (const Batches& batches : BatchCases()) {
    problems.Add({72, 264, 136}, batches, nullptr);
    problems.Add({65, 66, 67}, batches, nullptr);
    problems.Add({1, 1040, 24}, batches, nullptr);
    problems.Add({35, 523, 1}, batches, nullptr);
  }
  return problems.Take();
}

std::vector<VariantProblem> Tf32Problems() {
  Problems problems(DataType::kFloat32);
  for (const Size& size : {Size{512, 512, 512}, Size{264, 520, 136}, Size{65, 1025, 63},
                           Size{1, 2048, 72}, Size{300, 1030, 1}, Size{7, 1, 9}})
    problems.Add(size, {}, "tf32");
  problems.Add({72, 64, 136}, {{3}, {3}}, "tf32");
  return problems.Take();
}

std::vector<VariantProblem> LongTf32Problems() {
  Problems problems(DataType::kFloat32);
  for (const Size& size : {Size{24, 64, 40}, Size{24, 1024, 40}, Size{24, 8192, 40}})
    problems.Add(size, {}, "tf32");
  return problems.Take();
}

}  // namespace warpcall::testing
