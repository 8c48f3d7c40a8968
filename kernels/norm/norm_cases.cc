#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/norm/norm.h"
#include "proto/common/dispatch.h"

namespace warpcall::norm {
namespace {

// Below, u = 2^-24.
constexpr double kUnit = 0x1p-24;
// Roundings of a square, their mean, epsilon, the root and its reciprocal (2 u each on a GPU), and
// products.
constexpr double kSteps = 10;

// Merges of parts' means into a row's mean, each rounded; those of many parts average out.
constexpr double kMergings = 8;

// The error of a sum, relative to that of its terms' magnitudes. As in
// kernels/softmax/softmax_cases.cc, for the longest sums that rows have, two of 4096 terms to a
// block of 8192, and blocks one after another; but a large term may come first, so that every
// addition after it weighs as much: u^2 / 6 each.
double SumError(double n) {
  constexpr double kBlock = 8192;
  const double within = n <= kBlock ? n / 24 : kBlock / 24 * (kBlock / n);
  const double blocks = (64 + n / 64) / 6;
  return std::min(n, 6 * std::sqrt(within + blocks)) * kUnit;
}

// Statistics of a row. Where rows are not centred, the mean is 0; the deviation is around it.
struct RowFacts {
  double mean = 0;
  double magnitude = 0;  // mean|x|
  double deviation = 0;
  double least = INFINITY;
  double greatest = -INFINITY;
};

template <typename T>
RowFacts FactsOf(const T* x, const View& view) {
  RowFacts row;
  double sum = 0;
  double squares = 0;
  for (int64_t j = 0; j < view.n; ++j) {
    const double value = ToFloat(x[j]);
    sum += value;
    row.magnitude += std::fabs(value);
    row.least = std::min(row.least, value);
    row.greatest = std::max(row.greatest, value);
  }
  const auto n = static_cast<double>(view.n);
  row.mean = view.centered ? sum / n : 0;
  row.magnitude /= n;
  for (int64_t j = 0; j < view.n; ++j) {
    const double distance = double{ToFloat(x[j])} - row.mean;
    squares += distance * distance;
  }
  row.deviation = std::sqrt(squares / n);
  return row;
}

// Errors that all elements of a row share.
struct RowErrors {
  double mean = 0;
  double reciprocal = 0;  // 1 / sqrt(mean square + epsilon)
  double distance = 0;    // error of x - mean, in units of x
  double relative = 0;    // error of the normalised element
};

// Error bound of the mean of n elements. A float32 sum of the unchanged elements is off by a share
// of mean|x|, a useless bound where elements are close together. There the mean of their distances
// corrects it: the correction is off by a share of mean|x - mean| and of itself. The rest is
// rounding, which stays between the least and the greatest element. Elements are close together
// where their deviation is below a sixteenth of the mean: above that mean|x| is at most 17
// deviations.
double MeanError(const RowFacts& row, double sums) {
  const double plain = (sums + 2 * kUnit) * row.magnitude;
  const double rounded =
      std::min(kMergings * kUnit * std::fabs(row.mean), row.greatest - row.least);
  const double corrected = sums * (17 * row.deviation + sums * row.magnitude) + rounded;
  return std::min(plain, corrected);
}

// An error of the mean shifts every distance. Where blocks of a row have means of their own, it
// also shifts the mean square: by at most as much, relative to its root, and by its square.
template <typename T>
RowErrors ErrorsOfRow(const T* x, const View& view) {
  const RowFacts facts = FactsOf(x, view);
  RowErrors row;
  row.mean = facts.mean;
  row.reciprocal = 1 / std::sqrt(facts.deviation * facts.deviation + view.epsilon);
  const double sums = SumError(static_cast<double>(view.n));
  row.distance = view.centered ? MeanError(facts, sums) : 0;
  const double share = row.distance * row.reciprocal;
  row.relative = kSteps * kUnit + sums / 2 + std::min(1.0, share + share * share / 2);
  return row;
}

// Subnormal numbers lose up to 2^-150 each on the way: x, as it is or scaled near 1, and the
// normalised element before it is weighed.
double Underflow(const RowErrors& row, double n) {
  return 0x1p-147 * (1 + row.reciprocal + std::sqrt(n));
}

// The inputs for a row; ErrorOf bounds the error of element j, whose exact value is `truth`.
template <typename T>
struct RowInputs {
  const T* x;
  const T* weight;
  const T* bias;  // null: none

  ElementError ErrorOf(const RowErrors& row, double underflow, size_t j, double truth) const {
    const double w = std::fabs(double{ToFloat(weight[j])});
    const double shift = bias == nullptr ? 0 : double{ToFloat(bias[j])};
    const double off = row.distance * row.reciprocal;
    if (!std::isfinite(truth)) {
      // Infinity times a value that may as well be 0, or of the other sign: the normalised element
      // vanishes below float32's range, or beside the error of its row's mean.
      constexpr double kNothing = 0x1p-120;
      const double normalized = std::fabs(double{ToFloat(x[j])} - row.mean) * row.reciprocal;
      return {.arithmetic = std::isinf(w) && normalized <= off + kNothing ? INFINITY : 0};
    }
    return {.arithmetic = row.relative * std::fabs(truth - shift) + kUnit * std::fabs(truth) +
                          w * (off + underflow) + 0x1p-149,
            .subnormal_inputs = Flushed(row, j, truth - shift)};
  }

  // Error bound if each subnormal number becomes 0, 2^-126 at most: x, the mean and the distance;
  // the normalised element; the square of the distance; weight, the product, bias and the result.
  // `product` is the normalised element times weight.
  double Flushed(const RowErrors& row, size_t j, double product) const {
    constexpr double kLost = 0x1p-126;
    const double w = std::fabs(double{ToFloat(weight[j])});
    const double normalized = std::fabs(double{ToFloat(x[j])} - row.mean) * row.reciprocal;
    const double of_weight = std::min(w, kLost) * normalized;
    const double of_squares = row.reciprocal * row.reciprocal / 2 * std::fabs(product);
    return of_weight + kLost * (w * (3 * row.reciprocal + 1) + of_squares + 3);
  }
};

std::vector<ElementError> Errors(const Problem& problem, const Operands& inputs, int64_t index,
                                 absl::Span<const double> truth) {
  const View view = ViewOf(problem);
  std::vector<ElementError> errors;
  errors.reserve(truth.size());
  DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T) {
    const auto input = [&](int i) {
      return static_cast<const T*>(inputs.inputs[static_cast<size_t>(i)]);
    };
    const RowInputs<T> row{.x = input(kX) + index * view.n,
                           .weight = input(kWeight),
                           .bias = view.centered ? input(kBias) : nullptr};
    const RowErrors common = ErrorsOfRow(row.x, view);
    const double underflow = Underflow(common, static_cast<double>(view.n));
    for (size_t j = 0; j < truth.size(); ++j)
      errors.push_back(row.ErrorOf(common, underflow, j, truth[j]));
  });
  return errors;
}

constexpr char kTolerance[] =
    "of what bias is added to, 2^-24 (10 + 3 sqrt(n / 24 + 11)) up to n = 8192, then as sqrt(n / "
    "384); for layernorm also twice what its mean is off by, over the row's deviation, of weight "
    "and of the element: with s = 2^-24 (2 + 6 sqrt(n / 24 + 11)) the lesser of s mean|x| and 17 s "
    "deviations, and of the latter 8 roundings of the mean between the least and the greatest "
    "element more; and half a unit in the last place";

class CaseList {
 public:
  CaseList(bool centered, std::vector<Case>* cases) : centered_(centered), cases_(cases) {}

  void Add(const Dims& dims, Fill fill, std::vector<NamedAttribute> attributes = {}) {
    const char* const names[] = {"",        " wide",     " special", " broad",
                                 " spikes", " patterns", " alike"};
    Case added;
    added.name = absl::StrCat(ToString({DataType::kFloat32, dims}), names[static_cast<int>(fill)]);
    if (!attributes.empty())
      absl::StrAppend(&added.name, " epsilon ", std::get<double>(attributes[0].value));
    added.shapes = ShapesFor(centered_, dims);
    added.attributes = std::move(attributes);
    added.fill = fill;
    cases_->push_back(std::move(added));
  }

  void AddAllFills(const Dims& dims) {
    for (const Fill fill : {Fill::kNormal, Fill::kWide, Fill::kSpecial}) Add(dims, fill);
  }

  static std::vector<Dims> ShapesFor(bool centered, const Dims& dims) {
    std::vector<Dims> shapes = {dims, {dims.back()}};
    if (centered) shapes.push_back({dims.back()});
    return shapes;
  }

 private:
  const bool centered_;
  std::vector<Case>* const cases_;
};

// Around vectors of 1 to 32 lanes, around what a warp and a block of a GPU hold in registers,
// around the 8192 elements of a block of the vectorised row; few rows and many.
void AddRows(CaseList* list) {
  for (const int64_t n :
       {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 1009}) {
    list->AddAllFills({5, n});
    list->AddAllFills({97, n});
  }
  for (const int64_t n : {255,  256,  511,  512,  513,   1023,  1024,  1025,  2047,  2048,
                          2049, 3071, 3072, 3073, 4095,  4096,  4097,  6143,  6144,  6145,
                          8191, 8192, 8193, 8200, 16383, 16384, 16385, 16392, 32768, 32776})
    list->AddAllFills({7, n});
  list->AddAllFills({1031, 64});
  list->AddAllFills({1031, 100});
  // Few wide rows, which threads share, and what registers do not hold.
  for (const int64_t n : {32767, 32769, 65536, 65537}) list->AddAllFills({3, n});
  list->AddAllFills({2, 262147});
  list->AddAllFills({100003});
}

}  // namespace

OpCases Cases(bool centered) {
  OpCases cases{
      .cases = {},
      .errors = Errors,
      .tolerance = kTolerance,
      .allowances = {{.row = "cudnn_norm",
                      .reason = "cuDNN's kernels take subnormal numbers as 0, on the way, too: 0 "
                                "was seen for 7e-39, and for weight x 1e-39.",
                      .zero_below = 0x1p-126,
                      .flushes_subnormal_inputs = true}}};
  if (centered)
    cases.allowances.push_back({.row = "onednn_layer_normalization",
                                .reason = "The processor's conversion to bfloat16 gives subnormal "
                                          "results as 0 (Intel SDM, VCVTNEPS2BF16).",
                                .data_types = {DataType::kBFloat16},
                                .zero_below = 0x1p-126});
  CaseList list(centered, &cases.cases);
  AddRows(&list);
  // Results that bypass the caches (from 8 MiB), in rows that start at any alignment.
  list.Add({1027, 4099}, Fill::kNormal);
  list.Add({1, 4200001}, Fill::kNormal);
  // Far from 0 beside how far its elements are apart, and with one that is not like the others.
  for (const int64_t n : {2, 3, 5, 17, 129, 1000, 5003, 40000}) {
    list.Add({5, n}, Fill::kBroad);
    list.Add({37, n}, Fill::kSpikes);
  }
  for (const int64_t n : {64, 129}) list.Add({n, n}, Fill::kSpikes);
  // Elements so close together that they do not show the rounding error of their mean.
  for (const int64_t n : {2, 3, 17, 129, 768, 1000, 1024, 3000, 4096, 8192, 9001, 40000, 70001})
    list.Add({12, n}, Fill::kAlike);
  // Squares that are lost without a scale, and one that the epsilon dominates.
  for (const double epsilon : {1e-30, 1e-12, 0.5, 1e35, 1e60})
    for (const Fill fill : {Fill::kNormal, Fill::kWide})
      list.Add({11, 67}, fill, {{"epsilon", epsilon}});
  list.AddAllFills({2, 3, 1, 2, 5, 1, 3, 4});
  for (const Dims& dims : {Dims{0}, Dims{0, 4}, Dims{4, 0}, Dims{3, 0, 2}}) list.AddAllFills(dims);
  CaseList quick(centered, &cases.quick);
  quick.Add({5, 257}, Fill::kNormal);
  quick.Add({3, 1025}, Fill::kWide);
  quick.Add({5, 65}, Fill::kSpecial);
  if (centered) {
    cases.sized = [](int64_t elements) { return CaseList::ShapesFor(true, {elements / 512, 512}); };
  } else {
    cases.sized = [](int64_t elements) {
      return CaseList::ShapesFor(false, {elements / 512, 512});
    };
  }
  return cases;
}

}  // namespace warpcall::norm
