#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/softmax/softmax.h"

namespace warpcall::softmax {
namespace {

// Relative, because wide rows have small results. d = x - max rounds by 2^-24 |d|, which exp makes
// relative; |d| <= 88 where the result is a normal float. For the sum every row adds at most 128
// terms, or n / 128 of such sums, one after another, 2^-24 each. exp and the quotient (a reciprocal
// and a product) take some 2^-22 together.
// Below 2^-125 rows may give 0: subnormals are flushed, and oneDNN's exp loses the last binade of
// normal numbers too (seen: 0 for 1.44e-38, 1.2 x 2^-126). In a 16-bit type the truth and the
// result round by half a unit in the last place each: 2^-10 and 2^-7 relative, 2^-24 among
// float16's subnormals.
Tolerance Bound(const Problem& problem, double) {
  const View view = problem.inputs[0].elements() == 0 ? View{0, 0, 0} : ViewOf(problem);
  const double sum = 128 + static_cast<double>(view.n) / 128;
  const Tolerance arithmetic{0x1p-125, (88 + sum) * 0x1p-24 + 0x1p-22};
  switch (problem.outputs[0].data_type) {
    case DataType::kFloat16:
      return {0x1p-24, arithmetic.relative + 0x1p-10};
    case DataType::kBFloat16:
      return {arithmetic.absolute, arithmetic.relative + 0x1p-7};
    case DataType::kFloat32:
      break;
  }
  return arithmetic;
}

void AddAllFills(const Dims& dims, int64_t axis, OpCases* cases) {
  const NamedAttribute attribute{"axis", axis};
  const std::string name = absl::StrCat(ToString({DataType::kFloat32, dims}), " axis ", axis);
  cases->cases.push_back({name, {dims}, {attribute}, Fill::kNormal});
  cases->cases.push_back({name + " wide", {dims}, {attribute}, Fill::kWide});
  cases->cases.push_back({name + " special", {dims}, {attribute}, Fill::kSpecial});
}

}  // namespace

OpCases Cases() {
  OpCases cases{{}, Bound};
  // Rows around vectors of 1 to 32 lanes and their unrolled loops, and around the 8192 elements at
  // which the vectorised rows change their method; few and many of them.
  for (int64_t n :
       {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 1009}) {
    AddAllFills({5, n}, -1, &cases);
    AddAllFills({97, n}, 1, &cases);
  }
  for (int64_t n : {8191, 8192, 8193, 16385}) AddAllFills({11, n}, -1, &cases);
  // Where rows for GPUs change their number of threads, and more rows than a block has.
  for (int64_t n : {255,  256,  511,  512,  513,  1023, 1024, 1025, 2047, 2048,  2049,
                    3071, 3072, 3073, 4095, 4096, 4097, 6143, 6144, 6145, 16383, 16384})
    AddAllFills({7, n}, -1, &cases);
  AddAllFills({1031, 64}, -1, &cases);
  AddAllFills({1031, 100}, -1, &cases);
  AddAllFills({2, 262147}, -1, &cases);
  AddAllFills({5, 1031, 33}, 1, &cases);
  AddAllFills({1, 3, 4099}, 1, &cases);
  // Few wide rows, which threads share.
  for (int64_t n : {32767, 32768, 65537}) AddAllFills({3, n}, -1, &cases);
  AddAllFills({100003}, 0, &cases);
  // Results that bypass the caches (from 8 MiB), in rows that start at any alignment and in a row
  // that threads share.
  for (const Dims& dims : {Dims{1027, 4099}, Dims{1, 4200001}}) {
    const std::string name = ToString({DataType::kFloat32, dims});
    cases.cases.push_back({name, {dims}, {}, Fill::kNormal});
  }
  // Axes with a stride.
  for (int64_t inner : {1, 2, 3, 15, 16, 17, 63, 64, 65, 130}) {
    AddAllFills({3, 37, inner}, 1, &cases);
    AddAllFills({129, inner}, 0, &cases);
  }
  AddAllFills({2, 1, 5}, 1, &cases);
  AddAllFills({4099, 3}, 0, &cases);
  // Every axis of rank 8, from both ends, and tensors without elements.
  for (int64_t axis = -8; axis < 8; ++axis) AddAllFills({2, 3, 1, 2, 5, 1, 3, 4}, axis, &cases);
  for (const Dims& dims : {Dims{0}, Dims{0, 4}, Dims{4, 0}, Dims{3, 0, 2}}) {
    for (int64_t axis = 0; axis < static_cast<int64_t>(dims.size()); ++axis) {
      AddAllFills(dims, axis, &cases);
    }
  }
  return cases;
}

}  // namespace warpcall::softmax
