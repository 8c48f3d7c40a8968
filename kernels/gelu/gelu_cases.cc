#include "kernels/check/cases.h"
#include "kernels/gelu/gelu.h"

namespace warpcall::gelu {
namespace {

// The error of y = x Phi(x) comes from Phi, of which 2 to 4 roundings of 2^-24 relative to 1 must
// be granted to the unfused form 0.5 (1 + tanh(a)), and it is multiplied by |x|. Where Phi is near
// 0 that is no longer relative to y but absolute, with |x| <= 9 for float32 (beyond, both are 0 to
// this accuracy): 9 x 2^-24 = 5.4e-7. Elsewhere it is relative: 2^-21 = 8 x 2^-24. (gelu_test
// bounds the error relative to |x| near 0.) In a 16-bit type the truth and the result round by half
// a unit in the last place each: 2^-10 and 2^-7 relative, 2^-24 among float16's subnormals.
Tolerance Bound(const Problem& problem, double) {
  const Tolerance arithmetic{9 * 0x1p-24, 0x1p-21};
  switch (problem.outputs[0].data_type) {
    case DataType::kFloat16:
      return {arithmetic.absolute + 0x1p-24, arithmetic.relative + 0x1p-10};
    case DataType::kBFloat16:
      return {arithmetic.absolute, arithmetic.relative + 0x1p-7};
    case DataType::kFloat32:
      break;
  }
  return arithmetic;
}

}  // namespace

OpCases Cases() {
  OpCases cases{{}, Bound};
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
    for (const Dims& dims : shapes) {
      const std::string name = std::string(approximate) + ToString({DataType::kFloat32, dims});
      cases.cases.push_back({name, {dims}, {attribute}, Fill::kNormal});
      cases.cases.push_back({name + " wide", {dims}, {attribute}, Fill::kWide});
      cases.cases.push_back({name + " special", {dims}, {attribute}, Fill::kSpecial});
    }
  }
  // Large enough that results bypass the caches: 8 MiB of float32 and of 16 bits.
  cases.cases.push_back({"default large", {{4 * 1024 * 1024 + 5}}, {}, Fill::kNormal});
  return cases;
}

}  // namespace warpcall::gelu
