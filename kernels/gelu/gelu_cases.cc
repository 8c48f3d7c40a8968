#include <cmath>

#include "kernels/check/cases.h"
#include "kernels/common/element_slices.h"
#include "kernels/gelu/gelu.h"
#include "proto/common/dispatch.h"

namespace warpcall::gelu {
namespace {

// y = x Phi(x), and the error is that of Phi, multiplied by x. The unfused form of Phi, 0.5 (1 +
// tanh(a)) or 0.5 (1 + erf(z)), has roundings of 2^-24 relative to 1, however small Phi is: so the
// error is relative to x, not to y. Implementations that avoid this form approximate exp2 and the
// reciprocal instead, each with two or more such errors. The largest error seen is 3.1 x 2^-24 |x|,
// of the vectorised ones (gelu_simd.cc, gelu_cuda_vector.cu).
constexpr double kMiddle = 4 * 0x1p-24;
// Allowance for numbers this small: they, and errors relative to them, may come out as 0.
constexpr double kNothing = 1e-34;
// Beyond this 1 - Phi < 2^-25: y is x, save for what a reciprocal of 22 bits leaves (1 - 2^-24
// for 1, by a step of Newton's method from 11 bits).
constexpr double kRight = 5.5;
// Below this tanh and erf are -1 in float32, so the unfused form gives 0.
constexpr double kLeft = -6;

std::vector<ElementError> Errors(const Problem& problem, const Operands& inputs, int64_t index,
                                 absl::Span<const double> truth) {
  std::vector<ElementError> errors(truth.size());
  const Slice slice = ElementSlice(problem, index);
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(inputs.inputs[0]) + slice.first;
    for (size_t i = 0; i < errors.size(); ++i)
      errors[i] = {.arithmetic = ErrorAt(ToFloat(x[i]), truth[i])};
  });
  return errors;
}

constexpr char kTolerance[] =
    "4 x 2^-24 |x| and 1e-34, less than 2 x 2^-24 |x| where x > 5.5, |y| and 1e-34 where x < -6; "
    "and half a unit in the last place";

}  // namespace

double ErrorAt(double x, double y) {
  if (x > kRight) return 0x1p-24 * x + 2 * std::fabs(x - y);
  if (x < kLeft) return std::fabs(y) + kNothing;
  return kMiddle * std::fabs(x) + kNothing;
}

OpCases Cases() {
  OpCases cases{.cases = {}, .errors = Errors, .tolerance = kTolerance, .allowances = {}};
  cases.allowances = {{.row = "simd_fused",
                       .reason = "Its reciprocal has 22 bits, of which the tail of the erf form "
                                 "makes an error of 1.23 x 2^-22 |x| near 0.",
                       .arithmetic = 2},
                      {.row = "onednn_eltwise",
                       .reason = "oneDNN's erf is formula 7.1.26 of Abramowitz and Stegun, which "
                                 "is off by 1.5e-7 before anything is rounded.",
                       .arithmetic = 1.5}};
  // Around vectors of 1 to 32 lanes, around the grain of each row, and shapes that must not matter.
  const std::vector<Dims> shapes = {{0},      {1},           {2},      {3},
                                    {7},      {8},           {9},      {15},
                                    {16},     {17},          {31},     {32},
                                    {33},     {63},          {64},     {65},
                                    {1009},   {4095},        {4097},   {16383},
                                    {16385},  {32767},       {32768},  {32769},
                                    {65535},  {65537},       {5, 0},   {0, 3, 0},
                                    {17, 19}, {3, 5, 7, 11}, {100003}, {1, 2, 3, 1, 2, 3, 1, 5}};
  for (const char* const approximate : {"tanh", "none"}) {
    const NamedAttribute attribute{"approximate", std::string(approximate)};
    for (const Fill fill : {Fill::kNormal, Fill::kSpecial})
      cases.quick.push_back({std::string("quick ") + approximate, {{1009}}, {attribute}, fill});
    for (const Dims& dims : shapes) {
      const std::string name = std::string(approximate) + ToString({DataType::kFloat32, dims});
      cases.cases.push_back({name, {dims}, {attribute}, Fill::kNormal});
      cases.cases.push_back({name + " wide", {dims}, {attribute}, Fill::kWide});
      cases.cases.push_back({name + " special", {dims}, {attribute}, Fill::kSpecial});
    }
  }
  for (const char* const approximate : {"tanh", "none"}) {
    const NamedAttribute attribute{"approximate", std::string(approximate)};
    const std::string name = approximate;
    cases.cases.push_back({name + " patterns", {{4 * 65536}}, {attribute}, Fill::kPatterns});
    cases.cases.push_back({name + " broad", {{10007}}, {attribute}, Fill::kBroad});
  }
  // Large enough that results bypass the caches: 8 MiB of float32 and of 16 bits.
  cases.cases.push_back({"default large", {{4 * 1024 * 1024 + 5}}, {}, Fill::kNormal});
  cases.sized = [](int64_t elements) -> std::vector<Dims> { return {{elements}}; };
  return cases;
}

}  // namespace warpcall::gelu
