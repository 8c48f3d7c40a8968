#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check/cases.h"
#include "kernels/gelu/gelu.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "proto/common/dispatch.h"

namespace warpcall::linear {
namespace {

constexpr double kUnit = 0x1p-24;
// The steepest that gelu is, at 1.4.
constexpr double kSlopeMax = 1.13;

bool IsGelu(matmul::Activation activation) {
  return activation == matmul::Activation::kGelu || activation == matmul::Activation::kGeluErf;
}

double SlopeOf(matmul::Activation activation) { return IsGelu(activation) ? kSlopeMax : 1; }

// The sum's error as the activation magnifies it, plus the activation's own error.
double ErrorOf(matmul::Activation activation, double sum, double sum_error, double y) {
  return SlopeOf(activation) * sum_error + (IsGelu(activation) ? gelu::ErrorAt(sum, y) : 0);
}

// matmul's errors for the product, to which the bias is added in float32.
std::vector<ElementError> Errors(const Problem& problem, const Operands& inputs, int64_t index,
                                 absl::Span<const double> truth) {
  static const auto errors_of_products = matmul::Cases().errors;
  const Problem product = ProductOf(problem);
  std::vector<ElementError> errors = errors_of_products(product, inputs, index, truth);
  const matmul::Activation activation = ActivationOf(problem);
  const int64_t n = product.outputs[0].dims[1];
  const int64_t first = matmul::kDefinition.slice(product, index).first;
  std::vector<double> sums;
  sums.reserve(truth.size());
  const auto keep = [&](absl::Span<const double> values) {
    sums.insert(sums.end(), values.begin(), values.end());
  };
  matmul::kDefinition.evaluate(product, inputs, index, TakeValues(keep));
  DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T) {
    const T* const bias = static_cast<const T*>(inputs.inputs[kBias]);
    for (size_t i = 0; i < errors.size(); ++i) {
      const double shift = ToFloat(bias[(first + static_cast<int64_t>(i)) % n]);
      const double sum = sums[i] + shift;
      const double sum_error =
          errors[i].arithmetic + kUnit * (std::fabs(sums[i]) + std::fabs(sum)) + 0x1p-149;
      // A product beyond float32's range may make the sum infinite, or not.
      const bool overflows = std::isfinite(sums[i]) &&
                             std::fabs(sums[i]) + sum_error >= std::numeric_limits<float>::max();
      errors[i].arithmetic = overflows ? INFINITY : ErrorOf(activation, sum, sum_error, truth[i]);
      // An implementation that flushes subnormal inputs also flushes the product and the bias.
      errors[i].subnormal_inputs = SlopeOf(activation) * (errors[i].subnormal_inputs + 0x1p-125);
    }
  });
  return errors;
}

constexpr char kTolerance[] =
    "of the sum, min(k, 6 sqrt(k)) x 2^-24 sum|x weight| and 2^-23 of itself, with tf32 2^-9 "
    "sum|x weight| more; with gelu 1.13 times that and 4 x 2^-24 of the sum; and half a unit in "
    "the "
    "last place";

std::vector<Allowance> Allowances() {
  return {
      {.row = "simd_tiled",
       .reason = "Its gelu has a reciprocal of 22 bits, of which the tail of the erf form makes "
                 "an error of 1.23 x 2^-22 of the sum near 0.",
       .arithmetic = 2},
      {.row = "onednn_matmul",
       .reason = "The processor's dot products of bfloat16 take subnormal inputs, and give "
                 "subnormal sums, as 0 (Intel SDM, VDPBF16PS).",
       .data_types = {DataType::kBFloat16},
       .zero_below = 0x1p-126,
       .flushes_subnormal_inputs = true}};
}

struct Size {
  Dims rows;
  int64_t k;
  int64_t n;
};

Case CaseOf(const Size& size, const char* activation, Fill fill) {
  Dims x = size.rows;
  x.push_back(size.k);
  const char* const text = fill == Fill::kWide        ? " wide"
                           : fill == Fill::kSpecial   ? " special"
                           : fill == Fill::kSubnormal ? " subnormal"
                                                      : "";
  return {.name = absl::StrCat(activation, " ", absl::StrJoin(x, "x"), " to ", size.n, text),
          .shapes = {x, {size.n, size.k}, {size.n}},
          .attributes = {{"activation", std::string(activation)}},
          .fill = fill};
}

constexpr const char* kActivations[] = {"none", "relu", "gelu", "gelu_erf"};

// As matmul's: around register tiles, blocks and steps in k of the CPU, around tiles of 64, 128 and
// 256 of GPUs, and few rows; x of every rank.
std::vector<Size> Sizes() {
  return {{{0}, 3, 4},      {{3}, 0, 4},      {{3}, 4, 0},      {{0}, 0, 0},
          {{}, 7, 5},       {{}, 300, 1},     {{1}, 1, 1},      {{9}, 1, 1},
          {{1}, 513, 65},   {{1}, 1024, 256}, {{1030}, 37, 1},  {{2}, 511, 63},
          {{3}, 515, 66},   {{4}, 64, 513},   {{6}, 16, 32},    {{7}, 17, 33},
          {{12}, 255, 32},  {{13}, 257, 49},  {{24}, 256, 64},  {{5, 5}, 13, 1025},
          {{241}, 7, 31},   {{513}, 19, 47},  {{128}, 64, 128}, {{256}, 96, 128},
          {{127}, 31, 129}, {{129}, 65, 257}, {{64}, 1024, 72}, {{264}, 40, 136},
          {{256}, 520, 1},  {{16}, 512, 200}, {{3}, 4099, 5},   {{2, 3, 1, 2, 1, 3, 1}, 8, 24}};
}

}  // namespace

OpCases Cases() {
  OpCases cases{.cases = {}, .errors = Errors, .tolerance = kTolerance, .allowances = Allowances()};
  for (const char* const activation : kActivations) {
    for (const Size& size : Sizes()) cases.cases.push_back(CaseOf(size, activation, Fill::kNormal));
    // With one term per sum nothing overflows on the way.
    for (const Size& size : {Size{{3}, 1, 33}, Size{{49}, 1, 2}, Size{{40}, 1, 65}})
      for (const Fill fill : {Fill::kWide, Fill::kSpecial})
        cases.cases.push_back(CaseOf(size, activation, fill));
    // Products of subnormal numbers that are usual numbers.
    for (const Size& size : {Size{{1}, 300, 1}, Size{{1}, 513, 65}, Size{{24}, 520, 66},
                             Size{{13}, 257, 49}, Size{{129}, 600, 70}}) {
      Case subnormal = CaseOf(size, activation, Fill::kSubnormal);
      subnormal.later_fills = {Fill::kLarge, Fill::kNormal};
      cases.cases.push_back(std::move(subnormal));
    }
    cases.quick.push_back(CaseOf({{64}, 64, 64}, activation, Fill::kNormal));
    cases.quick.push_back(CaseOf({{13}, 33, 50}, activation, Fill::kNormal));
  }
  cases.quick.push_back(CaseOf({{3}, 1, 33}, "relu", Fill::kSpecial));
  cases.sized = [](int64_t elements) -> std::vector<Dims> {
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(elements)));
    return {{side, side}, {side, side}, {side}};
  };
  return cases;
}

}  // namespace warpcall::linear
