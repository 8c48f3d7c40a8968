// warpcall-kernel {
//   "name": "softmax-online",
//   "op": "softmax",
//   "attributes": {"axis": -1},
//   "types": ["float32", "float16", "bfloat16"],
//   "code": {"kind": "cuda", "entry": "softmax_online"},
//   "args": ["x.ptr", "y.ptr", "cols:i64"],
//   "launch": {"grid": ["rows"], "block": ["min(1024, max(32, next_pow2(ceil(cols / 4))))"]},
//   "requires": ["elements > 0"],
//   "examples": [[[4096, 1024]], [[7, 100003]], [[1000, 5]]]
// }

// Maximum and sum of a row in one pass (M. Milakov, N. Gimelshein, 2018): whenever the maximum
// grows, the sum so far is scaled to it. So a row is read twice and written once. A block for each
// row, with about four elements a thread where rows are short.
struct Partial {
  float max;
  float sum;  // of exp(x - max)
};

// Begins at the lowest finite number, so that -infinity below it adds exp(-infinity), 0. With a NaN
// or +infinity the sum is NaN (infinity - infinity), and so is the row: as the definition has it.
constexpr float kLowest = -3.402823466e38f;

__device__ Partial merged(Partial a, Partial b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}

__device__ Partial merged_over_warp(Partial partial) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const Partial other = {__shfl_xor_sync(0xFFFFFFFFu, partial.max, lanes),
                           __shfl_xor_sync(0xFFFFFFFFu, partial.sum, lanes)};
    partial = merged(partial, other);
  }
  return partial;
}

extern "C" __global__ void softmax_online(const T* x, T* y, long long cols) {
  x += blockIdx.x * cols;
  y += blockIdx.x * cols;
  Partial partial = {kLowest, 0.0f};
  for (long long j = threadIdx.x; j < cols; j += blockDim.x) {
    const float v = static_cast<float>(x[j]);
    const float max = fmaxf(partial.max, v);  // of a number and NaN: the number
    if (max > partial.max) partial.sum *= expf(partial.max - max);
    partial.max = max;
    partial.sum += expf(v - max);
  }
  __shared__ Partial of_warp[32];
  partial = merged_over_warp(partial);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = partial;
  __syncthreads();
  const unsigned warps = blockDim.x / 32;
  const unsigned lane = threadIdx.x % 32;
  partial = merged_over_warp(lane < warps ? of_warp[lane] : Partial{kLowest, 0.0f});
  for (long long j = threadIdx.x; j < cols; j += blockDim.x)
    y[j] = static_cast<T>(expf(static_cast<float>(x[j]) - partial.max) / partial.sum);
}
