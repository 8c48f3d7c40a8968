#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/softmax/softmax.h"

namespace warpcall::softmax {
namespace {

// Below, u = 2^-24, and d = ln(greatest y / y) is how far x lies under its row's maximum.
constexpr double kUnit = 0x1p-24;
// Rounding d and, on a GPU, d log2(e) costs u d each, the constant log2(e) 0.22 u d.
constexpr double kPerDistance = 2.5;
// Polynomials or ex2.approx, 4 u, up to three times where parts of a row are scaled to its maximum;
// the reciprocal, 2 u; products.
constexpr double kSteps = 24;

// The sum's relative error. Rounding errors of sums of positive terms are as good as independent
// (N. Higham, T. Mary, 2019), each with a variance of u^2 / 6 on average. The error of the j-th of
// m additions has the weight j / m, so the sum's variance is m / 18 u^2; the bound is six standard
// deviations. The longest sums are two of 4096 terms to a block of 8192 (simd_rows without
// vectors), whose errors are independent again, and blocks of 64 terms or more one after another
// (its strided axis). The bound is 60 u for n = 10^5, where a lost element of average weight
// changes all others by 168 u.
double SumError(double n) {
  constexpr double kBlock = 8192;
  const double within = n <= kBlock ? n / 72 : kBlock / 72 * (kBlock / n);
  const double blocks = (64 + n / 64) / 18;
  return std::min(n, 6 * std::sqrt(within + blocks)) * kUnit;
}

// The errors are relative to y, except where exp(-d) < 2^-126, for which 0 is allowed. An error of
// exp that grows with d reaches the sum with the weight of its term. Terms that weigh less than u
// are lost, all of them on the same side, to a sum that already holds a large one.
std::vector<ElementError> Errors(const Problem&, const Operands&, int64_t,
                                 absl::Span<const double> truth) {
  std::vector<ElementError> errors(truth.size());
  const double greatest = *std::max_element(truth.begin(), truth.end());
  const double log_greatest = std::log(greatest);
  double weighed = 0;
  double absorbed = 0;
  for (size_t j = 0; j < truth.size(); ++j) {
    const double d = truth[j] > 0 ? log_greatest - std::log(truth[j]) : 0;
    errors[j].arithmetic = d;
    weighed += truth[j] * d;
    if (truth[j] < kUnit) absorbed += truth[j];
  }
  const double common = (kSteps + kPerDistance * weighed) * kUnit + absorbed +
                        SumError(static_cast<double>(truth.size()));
  for (size_t j = 0; j < truth.size(); ++j) {
    const double relative = common + kPerDistance * errors[j].arithmetic * kUnit;
    errors[j].arithmetic = truth[j] * relative + 1.001 * 0x1p-126 * greatest;
  }
  return errors;
}

constexpr char kTolerance[] =
    "relative to y: 2^-24 (24 + 2.5 (d + mean of d weighed by y) + 6 sqrt(n / 72 + 4) up to n = "
    "8192, then as sqrt(n / 1152)), d = ln(greatest y / y); the sum of all y < 2^-24; 2^-126 of "
    "the greatest y; and half a unit in the last place";

// Known errors of libraries, whose code is not ours.
std::vector<Allowance> Allowances() {
  return {
      {.row = "onednn_softmax",
       .reason = "oneDNN's exp gives 0 for the last binade of normal numbers, too: 0 was seen "
                 "for 1.2 x 2^-126; and it sums a column term by term, which by the same six "
                 "standard deviations makes 6 sqrt(n / 18) x 2^-24: with n = 32768 the bound is "
                 "3.7 times as large. Errors of terms that are alike do not cancel: of a row of "
                 "2^17 such the bound was exceeded 14 times, of 2^20 33 times.",
       .data_types = {DataType::kFloat32},
       .arithmetic = 4,
       .zero_below = 0x1p-125},
      {.row = "onednn_softmax",
       .reason =
           "oneDNN keeps the exponentials in bfloat16, so that results are rounded twice, and "
           "sums columns as it does in float32.",
       .data_types = {DataType::kBFloat16},
       .arithmetic = 4,
       .roundings = 2,
       .zero_below = 0x1p-125},
      {.row = "cudnn_softmax",
       .reason = "cuDNN gives 0 for subnormal numbers.",
       .data_types = {DataType::kFloat32},
       .zero_below = 0x1p-125},
      {.row = "cudnn_softmax",
       .reason = "cuDNN rounds twice to a type of 16 bits.",
       .data_types = {DataType::kFloat16, DataType::kBFloat16},
       .roundings = 2,
       .zero_below = 0x1p-125}};
}

void Add(const Dims& dims, int64_t axis, Fill fill, OpCases* cases) {
  const char* const names[] = {"", " wide", " special", " broad", " spikes"};
  const std::string name = absl::StrCat(ToString({DataType::kFloat32, dims}), " axis ", axis,
                                        names[static_cast<int>(fill)]);
  cases->cases.push_back({name, {dims}, {{"axis", axis}}, fill});
}

// A lost or doubled element shows in the row whose spike it is, however long the row.
void AddSpikes(OpCases* cases) {
  for (int64_t n : {2,  3,  4,  5,  7,  8,  9,  12,  15,  16,  17,  31,  32, 33,
                    48, 63, 64, 65, 95, 96, 97, 127, 128, 129, 255, 256, 257}) {
    Add({n, n}, 1, Fill::kSpikes, cases);
    Add({n, n}, 0, Fill::kSpikes, cases);
  }
  for (int64_t n : {500, 513, 1024, 1031, 1537, 2049, 3080, 4097, 8191, 8200, 12289, 16400, 24593})
    Add({37, n}, 1, Fill::kSpikes, cases);
  for (int64_t n : {32769, 65537, 100003}) Add({61, n}, 1, Fill::kSpikes, cases);
  // Rows of whole vectors that several blocks of a GPU hold together.
  Add({61, 32776}, 1, Fill::kSpikes, cases);
  Add({23, 65536}, 1, Fill::kSpikes, cases);
  Add({11, 131080}, 1, Fill::kSpikes, cases);
  Add({7, 262144}, 1, Fill::kSpikes, cases);
}

void AddAllFills(const Dims& dims, int64_t axis, OpCases* cases) {
  for (const Fill fill : {Fill::kNormal, Fill::kWide, Fill::kSpecial}) Add(dims, axis, fill, cases);
}

}  // namespace

OpCases Cases() {
  OpCases cases{.cases = {}, .errors = Errors, .tolerance = kTolerance, .allowances = Allowances()};
  // Rows around vectors of 1 to 32 lanes and their unrolled loops, and around the 8192 elements at
  // which the vectorised implementations change their method; few rows and many.
  for (int64_t n :
       {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 1009}) {
    AddAllFills({5, n}, -1, &cases);
    AddAllFills({97, n}, 1, &cases);
  }
  for (int64_t n : {8191, 8192, 8193, 16385}) AddAllFills({11, n}, -1, &cases);
  // Lengths at which GPU implementations change their number of threads, and more than a block's.
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
  AddAllFills({17, 40000}, -1, &cases);
  AddAllFills({100003}, 0, &cases);
  // Results that bypass the caches (from 8 MiB), in rows that start at any alignment and in a row
  // that threads share.
  for (const Dims& dims : {Dims{1027, 4099}, Dims{1, 4200001}}) {
    const std::string name = ToString({DataType::kFloat32, dims});
    cases.cases.push_back({name, {dims}, {}, Fill::kNormal});
  }
  AddSpikes(&cases);
  for (int64_t n : {17, 129, 1000, 5003, 40000}) Add({5, n}, 1, Fill::kBroad, &cases);
  Add({3, 257, 19}, 1, Fill::kBroad, &cases);
  // Axes with a stride.
  for (int64_t inner : {1, 2, 3, 15, 16, 17, 63, 64, 65, 130}) {
    AddAllFills({3, 37, inner}, 1, &cases);
    AddAllFills({129, inner}, 0, &cases);
  }
  AddAllFills({2, 1, 5}, 1, &cases);
  AddAllFills({4099, 3}, 0, &cases);
  // Axes that clusters of blocks hold, at the ends of their ranges, and axes of more elements than
  // a cluster takes.
  for (int64_t n : {512, 513, 8192, 8193, 16384, 16385, 32768, 32769})
    AddAllFills({n, 8}, 0, &cases);
  AddAllFills({2, 1025, 136}, 1, &cases);
  Add({16384, 40}, 0, Fill::kSpikes, &cases);
  Add({3, 4096, 24}, 1, Fill::kBroad, &cases);
  // More panels of columns than clusters work on at a time.
  Add({3, 8200, 200}, 1, Fill::kSpecial, &cases);
  // Every axis of rank 8, from both ends, and tensors without elements.
  for (int64_t axis = -8; axis < 8; ++axis) AddAllFills({2, 3, 1, 2, 5, 1, 3, 4}, axis, &cases);
  for (const Dims& dims : {Dims{0}, Dims{0, 4}, Dims{4, 0}, Dims{3, 0, 2}}) {
    for (int64_t axis = 0; axis < static_cast<int64_t>(dims.size()); ++axis) {
      AddAllFills(dims, axis, &cases);
    }
  }
  cases.quick = {{"quick", {{5, 257}}, {}, Fill::kNormal},
                 {"quick wide", {{3, 1025}}, {}, Fill::kWide},
                 {"quick strided", {{3, 37, 17}}, {{"axis", int64_t{1}}}, Fill::kNormal},
                 {"quick special", {{5, 65}}, {}, Fill::kSpecial}};
  cases.sized = [](int64_t elements) -> std::vector<Dims> { return {{elements / 512, 512}}; };
  return cases;
}

}  // namespace warpcall::softmax
