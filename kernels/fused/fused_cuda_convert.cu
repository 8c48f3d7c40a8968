// One pass from one type to another, four elements a thread.
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/threads.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/fused/fused_cuda_convert.h"
#include "proto/common/dispatch.h"

namespace warpcall::fused {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;

template <typename From, typename To, int kCount>
__device__ void ConvertVector(const From* from, To* to) {
  float values[kCount];
  cuda::Vector<From, kCount>::LoadStreaming(from).Unpack(values);
  cuda::Vector<To, kCount>::Pack(values).StoreStreaming(to);
}

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    Convert(const From* __restrict__ from, To* __restrict__ to, int64_t count) {
  const int64_t at = (cuda::BlockIndex() * kThreads + threadIdx.x) * kWidth;
  if (at + kWidth <= count) {
    ConvertVector<From, To, kWidth>(from + at, to + at);
    return;
  }
  for (int64_t i = at; i < count; ++i) ConvertVector<From, To, 1>(from + i, to + i);
}

template <typename From, typename To>
absl::Status LaunchConvert(const Conversion& conversion, const LaunchContext& context) {
  const int64_t count = conversion.elements;
  const cuda::Grid grid = cuda::GridOf(CeilDivide(count, kThreads * kWidth), kThreads);
  return cuda::Launch(Convert<From, To>, grid, context, static_cast<const From*>(conversion.from),
                      static_cast<To*>(conversion.to), count);
}

}  // namespace

absl::Status WidenOnGpu(const Conversion& conversion, DataType type, const LaunchContext& context) {
  return DispatchDataType(
      type, [&]<typename T>(T) { return LaunchConvert<T, float>(conversion, context); });
}

absl::Status RoundOnGpu(const Conversion& conversion, DataType type, const LaunchContext& context) {
  return DispatchDataType(
      type, [&]<typename T>(T) { return LaunchConvert<float, T>(conversion, context); });
}

}  // namespace warpcall::fused
