#include "kernels/expression/cuda_prelude.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

constexpr char kIntegers[] = R"(typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

)";

// Instructions without a name in C++, for the data type $0. A test that compiles a source for the
// host supplies its own by the macro.
// ex2 and rcp take subnormal numbers as 0 and are off by 2 and 1 units in the last place at most.
constexpr char kInstructions[] = R"(#ifdef WARPCALL_INSTRUCTIONS
WARPCALL_INSTRUCTIONS($0)
#else
__device__ __forceinline__ float Ex2(float a) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
__device__ __forceinline__ float Rcp(float a) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
// NaN when an operand is; +0 is above -0.
__device__ __forceinline__ float Max(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ float Min(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
$1$2#endif
)";

// Gelu and GeluErf are those of kernels/gelu/gelu_cuda_forms.cuh, which says where the numbers are
// from: off by 3.1 and 2.3 x 2^-24 |a|.
constexpr char kFunctions[] = R"(
// Of zeros the second, as the definition has it.
__device__ __forceinline__ float Greater(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float Lesser(float a, float b) { return a < b || a != a ? a : b; }
__device__ __forceinline__ bool IsLowest(float a) { return a < -3.402823466e38f; }
__device__ __forceinline__ float Gelu(float a) {
  const float x = Max(a, -32.0f);
  const float u = x * fmaf(x * x, -0.102943239f, -2.30220819f);
  return x * Rcp(Ex2(u) + 1.0f);
}
__device__ __forceinline__ float GeluErf(float a) {
  const float s = Min(fabsf(a), 16.0f);
  float p = fmaf(-1.12249802e-6f, s, 1.90048322e-5f);
  p = fmaf(p, s, -9.22289328e-5f);
  p = fmaf(p, s, -3.51257040e-4f);
  p = fmaf(p, s, 0.00731929950f);
  p = fmaf(p, s, -0.0526514240f);
  p = fmaf(p, s, -0.459165871f);
  p = fmaf(p, s, -1.15110886f);
  p = fmaf(p, s, -1.0f);
  return fmaf(-s, Ex2(p), Max(a, 0.0f));
}
__device__ __forceinline__ float Sigmoid(float a) { return Rcp(1.0f + expf(-a)); }
__device__ __forceinline__ float Silu(float a) { return IsLowest(a) ? -0.0f : a * Sigmoid(a); }

// A divisor of many elements. a / b is (a * scale) * reciprocal, off by 2^-23: the reciprocal of
// b * scale is a normal number, or what that of 0 and infinity must be.
struct Divisor {
  float scale;
  float reciprocal;
};
__device__ __forceinline__ Divisor DivisorOf(float b) {
  const float size = fabsf(b);
  const float scale = size < 0x1p-100f ? 0x1p64f : size > 0x1p100f ? 0x1p-64f : 1.0f;
  return {scale, 1.0f / (b * scale)};
}
__device__ __forceinline__ float Quotient(float a, Divisor b) {
  return (a * b.scale) * b.reciprocal;
}

__device__ __forceinline__ float QuickExp(float a) { return Ex2(a * 1.44269504f); }
__device__ __forceinline__ float InverseRms(double squares, double share, double epsilon) {
  return (float)rsqrt(squares * share + epsilon);
}

// Philox 4x32-10, laid out as kernels/expression/mask.h says.
__device__ __forceinline__ u32 Word(u64 place, u32 call) {
  const u64 group = place / 4;
  u32 c0 = (u32)group, c1 = (u32)(group >> 32), c2 = call, c3 = 0;
  u32 key0 = kKey0, key1 = kKey1;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 product0 = (u64)0xD2511F53u * c0;
    const u64 product1 = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(product1 >> 32) ^ c1 ^ key0;
    c1 = (u32)product1;
    c2 = (u32)(product0 >> 32) ^ c3 ^ key1;
    c3 = (u32)product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const u32 word = (u32)place % 4;
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}
__device__ __forceinline__ float Drop(float a, i64 place, u32 call, u64 threshold, float scale) {
  return Word((u64)place, call) >= threshold ? a * scale : 0.0f;
}
)";

// Conversions of one element, and of two in a register, the first in the lower half.
constexpr char kFloat16[] = R"(__device__ __forceinline__ float Widen(u16 a) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(a));
  return wide;
}
__device__ __forceinline__ u16 Narrow(float a) {
  u16 narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(a));
  return narrow;
}
__device__ __forceinline__ float Low(u32 pair) { return Widen((u16)pair); }
__device__ __forceinline__ float High(u32 pair) { return Widen((u16)(pair >> 16)); }
__device__ __forceinline__ u32 Pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
)";

constexpr char kBFloat16[] = R"(__device__ __forceinline__ float Widen(u16 a) {
  return __uint_as_float((u32)a << 16);
}
__device__ __forceinline__ u16 Narrow(float a) {
  u16 narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(a));
  return narrow;
}
__device__ __forceinline__ float Low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float High(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }
__device__ __forceinline__ u32 Pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
)";

// Vectors of memory: what is read once passes by the first-level cache, what is written leaves the
// second-level cache first. $0: how wide, as PTX says it; $1, $3: the words of an access; $2, $4:
// their constraints.
constexpr char kAccess[] = R"(__device__ __forceinline__ Vector LoadOnce(const T* at) {
  Vector v;
  asm volatile("ld.global.nc.L1::no_allocate$0 $1, [%$5];" : $2 : "l"(at));
  return v;
}
__device__ __forceinline__ Vector Load(const T* at) {
  Vector v;
  asm("ld.global.nc$0 $1, [%$5];" : $2 : "l"(at));
  return v;
}
__device__ __forceinline__ void Store(T* at, Vector v) {
  asm volatile("st.global.cs$0 [%0], $3;" : : "l"(at), $4 : "memory");
}
)";

// The elements of a vector.
constexpr char kElements32[] = R"(
__device__ __forceinline__ float Widen(float a) { return a; }
__device__ __forceinline__ float Narrow(float a) { return a; }
__device__ __forceinline__ float At(Vector v, int j) { return __uint_as_float(v.w[j]); }
__device__ __forceinline__ Vector Pack(const float (&values)[kVector]) {
  Vector v;
#pragma unroll
  for (int j = 0; j < kVector; ++j) v.w[j] = __float_as_uint(values[j]);
  return v;
}
)";

constexpr char kElements16[] = R"(
__device__ __forceinline__ float At(Vector v, int j) {
  return j % 2 == 0 ? Low(v.w[j / 2]) : High(v.w[j / 2]);
}
__device__ __forceinline__ Vector Pack(const float (&values)[kVector]) {
  Vector v;
#pragma unroll
  for (int j = 0; j < kVector; j += 2) v.w[j / 2] = Pair(values[j], values[j + 1]);
  return v;
}
)";

constexpr char kElement16[] = R"(
__device__ __forceinline__ float At(Vector v, int) { return Widen(v.w[0]); }
__device__ __forceinline__ Vector Pack(const float (&values)[1]) {
  Vector v;
  v.w[0] = Narrow(values[0]);
  return v;
}
)";

// The `count` first elements of a vector.
constexpr char kParts[] = R"(
__device__ __forceinline__ Vector LoadPart(const T* at, int count) {
  float values[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) values[j] = j < count ? Widen(at[j]) : 0.0f;
  return Pack(values);
}
__device__ __forceinline__ void StorePart(T* at, const float (&values)[kVector], int count) {
#pragma unroll
  for (int j = 0; j < kVector; ++j)
    if (j < count) at[j] = Narrow(values[j]);
}
)";

// Reductions over the threads of a row: by warps, and then over the warps of a block, by shared
// memory that no other reduction uses. All lanes of a pair get the same bits.
constexpr char kReductions[] = R"(
struct Sum {
  template <typename Value>
  static __device__ __forceinline__ Value Of(Value a, Value b) { return a + b; }
};
struct Greatest {
  static __device__ __forceinline__ float Of(float a, float b) { return Max(a, b); }
};
struct Least {
  static __device__ __forceinline__ float Of(float a, float b) { return Min(a, b); }
};

template <typename How, int kLanes, typename Value>
__device__ __forceinline__ Value LanesOf(Value value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
    value = How::Of(value, __shfl_xor_sync(0xFFFFFFFFu, value, lanes));
  return value;
}
template <typename How, int kReduction, int kThreads, typename Value>
__device__ __forceinline__ Value RowOf(Value value) {
  if constexpr (kThreads <= 32) {
    return LanesOf<How, kThreads>(value);
  } else {
    __shared__ Value of_warps[kThreads / 32];
    value = LanesOf<How, 32>(value);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    return LanesOf<How, kThreads / 32>(of_warps[threadIdx.x % (kThreads / 32)]);
  }
}
)";

// Returns the instructions that move a vector of `bytes`.
std::string AccessText(int bytes) {
  const int words = std::max(1, bytes / 4);
  const char* const kind = bytes == 2 ? "h" : "r";
  std::vector<std::string> loaded, stored, outputs, inputs;
  for (int i = 0; i < words; ++i) {
    loaded.push_back(absl::StrCat("%", i));
    stored.push_back(absl::StrCat("%", i + 1));
    outputs.push_back(absl::StrCat("\"=", kind, "\"(v.w[", i, "])"));
    inputs.push_back(absl::StrCat("\"", kind, "\"(v.w[", i, "])"));
  }
  const auto list = [&](const std::vector<std::string>& names) {
    const std::string joined = absl::StrJoin(names, ", ");
    return words == 1 ? joined : absl::StrCat("{", joined, "}");
  };
  const std::string type = bytes == 2 ? ".b16" : ".b32";
  const std::string width = words == 1 ? type : absl::StrCat(".v", words, type);
  return absl::Substitute(kAccess, width, list(loaded), absl::StrJoin(outputs, ", "), list(stored),
                          absl::StrJoin(inputs, ", "), words);
}

// Returns the conversions of one element and of two; float32 needs none.
const char* ConversionText(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "";
    case DataType::kFloat16:
      return kFloat16;
    case DataType::kBFloat16:
      return kBFloat16;
  }
  AbortOnDataType(type);
}

const char* ElementsText(DataType type, int vector) {
  if (type == DataType::kFloat32) return kElements32;
  return vector == 1 ? kElement16 : kElements16;
}

}  // namespace

std::string PreludeText(const CudaPrelude& prelude) {
  WARPCALL_DCHECK(prelude.row_threads > 0 && (prelude.row_threads & (prelude.row_threads - 1)) == 0,
                  prelude.row_threads);
  const auto seed = static_cast<uint64_t>(prelude.seed);
  const bool is_float = prelude.data_type == DataType::kFloat32;
  const int bytes = prelude.vector * static_cast<int>(ElementBytes(prelude.data_type));
  std::string text = kIntegers;
  absl::StrAppend(&text, "static const u32 kKey0 = ", static_cast<uint32_t>(seed), "u;\n",
                  "static const u32 kKey1 = ", static_cast<uint32_t>(seed >> 32), "u;\n");
  absl::StrAppend(&text, "static const int kRowThreads = ", prelude.row_threads,
                  ";\nstatic const int kVector = ", prelude.vector, ";\n");
  absl::StrAppend(&text, "typedef ", is_float ? "float" : "u16", " T;\n", "struct __align__(",
                  bytes, ") Vector {\n  ", bytes == 2 ? "u16" : "u32", " w[",
                  std::max(1, bytes / 4), "];\n};\n\n");
  absl::StrAppend(&text,
                  absl::Substitute(kInstructions, static_cast<int>(prelude.data_type),
                                   ConversionText(prelude.data_type), AccessText(bytes)),
                  ElementsText(prelude.data_type, prelude.vector), kParts, kFunctions,
                  prelude.reduces ? kReductions : "", "\n");
  return text;
}

const char* CudaTemplateOf(Operator op) {
  switch (op) {
    case Operator::kNegate:
      return "-$0";
    case Operator::kAbs:
      return "fabsf($0)";
    case Operator::kExp:
      return "expf($0)";
    case Operator::kExp2:
      return "exp2f($0)";
    case Operator::kLog:
      return "logf($0)";
    case Operator::kSqrt:
      return "sqrtf($0)";
    case Operator::kRsqrt:
      return "rsqrtf($0)";
    case Operator::kTanh:
      return "tanhf($0)";
    case Operator::kErf:
      return "erff($0)";
    case Operator::kSigmoid:
      return "Sigmoid($0)";
    case Operator::kRelu:
      return "$0 <= 0.0f ? 0.0f : $0";
    case Operator::kGelu:
      return "Gelu($0)";
    case Operator::kGeluErf:
      return "GeluErf($0)";
    case Operator::kSilu:
      return "Silu($0)";
    case Operator::kAdd:
      return "$0 + $1";
    case Operator::kSubtract:
      return "$0 - $1";
    case Operator::kMultiply:
      return "$0 * $1";
    case Operator::kDivide:
      return "$0 / $1";
    case Operator::kMin:
      return "Lesser($0, $1)";
    case Operator::kMax:
      return "Greater($0, $1)";
    case Operator::kLess:
      return "$0 < $1 ? 1.0f : 0.0f";
    case Operator::kLessEqual:
      return "$0 <= $1 ? 1.0f : 0.0f";
    case Operator::kGreater:
      return "$0 > $1 ? 1.0f : 0.0f";
    case Operator::kGreaterEqual:
      return "$0 >= $1 ? 1.0f : 0.0f";
    case Operator::kEqual:
      return "$0 == $1 ? 1.0f : 0.0f";
    case Operator::kSelect:
      return "$0 != 0.0f ? $1 : $2";
    case Operator::kInput:
    case Operator::kConstant:
    case Operator::kDropout:
    case Operator::kPow:
    case Operator::kRowSum:
    case Operator::kRowMean:
    case Operator::kRowMax:
    case Operator::kRowMin:
    case Operator::kRowInverseRms:
      break;
  }
  WARPCALL_DCHECK(false, OperatorName(op));
  return "";
}

}  // namespace warpcall::expression
