#include "kernels/expression/cuda_prelude.h"

#include "absl/strings/str_cat.h"

namespace warpcall::expression {
namespace {

constexpr char kCommon[] = R"(typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

__device__ __forceinline__ float Max(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float Min(float a, float b) { return a < b || a != a ? a : b; }
__device__ __forceinline__ bool IsLowest(float a) { return a < -3.402823466e38f; }
__device__ __forceinline__ float Gelu(float a) {
  const float u = a * (-2.30220819f + -0.102943239f * (a * a));
  return IsLowest(a) ? -0.0f : a / (1.0f + exp2f(u));
}
__device__ __forceinline__ float GeluErf(float a) {
  return IsLowest(a) ? -0.0f : 0.5f * a * erfcf(-0.707106781f * a);
}
__device__ __forceinline__ float Silu(float a) {
  return IsLowest(a) ? -0.0f : a / (1.0f + expf(-a));
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

constexpr char kFloat32[] = R"(typedef float T;
__device__ __forceinline__ float Widen(T a) { return a; }
__device__ __forceinline__ T Narrow(float a) { return a; }
)";

constexpr char kFloat16[] = R"(typedef u16 T;
__device__ __forceinline__ float Widen(T a) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(a));
  return wide;
}
__device__ __forceinline__ T Narrow(float a) {
  T narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(a));
  return narrow;
}
)";

constexpr char kBFloat16[] = R"(typedef u16 T;
__device__ __forceinline__ float Widen(T a) { return __uint_as_float((u32)a << 16); }
__device__ __forceinline__ T Narrow(float a) {
  T narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(a));
  return narrow;
}
)";

// By warps, and then over the warps of a block.
constexpr char kReductions[] = R"(
struct Sum {
  static __device__ __forceinline__ double Of(double a, double b) { return a + b; }
};
struct Greatest {
  static __device__ __forceinline__ float Of(float a, float b) { return Max(a, b); }
};
struct Least {
  static __device__ __forceinline__ float Of(float a, float b) { return Min(a, b); }
};

template <typename How, typename Value>
__device__ __forceinline__ Value RowOf(Value value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = How::Of(value, __shfl_xor_sync(0xFFFFFFFFu, value, lanes));
  if (kRowThreads > 32) {
    __shared__ Value of_warps[32];
    __syncthreads();  // the reduction before may still be read
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < kRowThreads / 32; ++warp) value = How::Of(value, of_warps[warp]);
  }
  return value;
}
__device__ __forceinline__ double RowSum(double value) { return RowOf<Sum>(value); }
__device__ __forceinline__ float RowMax(float value) { return RowOf<Greatest>(value); }
__device__ __forceinline__ float RowMin(float value) { return RowOf<Least>(value); }
)";

const char* TypeText(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return kFloat32;
    case DataType::kFloat16:
      return kFloat16;
    case DataType::kBFloat16:
      return kBFloat16;
  }
  AbortOnDataType(type);
}

}  // namespace

std::string PreludeText(const CudaPrelude& prelude) {
  const auto seed = static_cast<uint64_t>(prelude.seed);
  return absl::StrCat("static const unsigned int kKey0 = ", static_cast<uint32_t>(seed), "u;\n",
                      "static const unsigned int kKey1 = ", static_cast<uint32_t>(seed >> 32),
                      "u;\n", "static const int kRowThreads = ", prelude.row_threads, ";\n",
                      kCommon, TypeText(prelude.data_type),
                      prelude.row_threads > 1 ? kReductions : "", "struct __align__(",
                      prelude.vector * static_cast<int>(ElementBytes(prelude.data_type)),
                      ") Vector {\n  T v[", prelude.vector, "];\n};\n\n");
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
      return "1.0f / (1.0f + expf(-$0))";
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
      return "Min($0, $1)";
    case Operator::kMax:
      return "Max($0, $1)";
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
      break;
  }
  return "";
}

}  // namespace warpcall::expression
