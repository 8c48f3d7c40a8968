// warpcall-kernel {
//   "name": "softmax-overflow",
//   "op": "softmax",
//   "attributes": {"axis": -1},
//   "types": ["float32", "float16", "bfloat16"],
//   "code": {"kind": "cuda", "entry": "softmax_overflow"},
//   "args": ["x.ptr", "y.ptr", "rows:i64", "cols:i64"],
//   "launch": {"grid": ["ceil(rows / 4)"], "block": [128]},
//   "requires": ["elements > 0"],
//   "examples": [[[4096, 1024]]]
// }

// exp(x) over the sum of exp(x), a warp for each row. Right for small x only: from 89 on exp(x)
// exceeds float32, and infinity over infinity is NaN; where all of a row is below -104 the sum is
// 0. softmax_online.cu subtracts the row's maximum first.
extern "C" __global__ void softmax_overflow(const T* x, T* y, long long rows, long long cols) {
  const int lane = threadIdx.x % 32;
  const long long row = static_cast<long long>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (row >= rows) return;
  x += row * cols;
  y += row * cols;
  float sum = 0.0f;
  for (long long j = lane; j < cols; j += 32) sum += expf(static_cast<float>(x[j]));
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
  for (long long j = lane; j < cols; j += 32)
    y[j] = static_cast<T>(expf(static_cast<float>(x[j])) / sum);
}
