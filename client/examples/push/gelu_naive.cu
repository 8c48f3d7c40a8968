// warpcall-kernel {
//   "name": "gelu-naive",
//   "op": "gelu",
//   "attributes": {"approximate": "tanh"},
//   "types": ["float32", "float16", "bfloat16"],
//   "code": {"kind": "cuda", "entry": "gelu_naive"},
//   "args": ["x.ptr", "y.ptr", "elements:i64"],
//   "launch": {"grid": ["ceil(elements / 256)"], "block": [256]},
//   "requires": ["elements > 0"],
//   "examples": [[[4096, 1024]]]
// }

// The formula as it is written down, an element a thread. Wrong for x = -infinity, where tanh is -1
// and infinity times 0 is NaN: gelu.cu.
extern "C" __global__ void gelu_naive(const T* x, T* y, long long elements) {
  const long long i = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= elements) return;
  const float v = static_cast<float>(x[i]);
  const float bent = 0.7978845608f * (v + 0.044715f * v * v * v);
  y[i] = static_cast<T>(0.5f * v * (1.0f + tanhf(bent)));
}
