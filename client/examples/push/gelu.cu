// warpcall-kernel {
//   "name": "gelu",
//   "op": "gelu",
//   "attributes": {"approximate": "tanh"},
//   "types": ["float32", "float16", "bfloat16"],
//   "code": {"kind": "cuda", "entry": "gelu"},
//   "args": ["x.ptr", "y.ptr", "elements:i64"],
//   "launch": {"grid": ["ceil(elements / 256)"], "block": [256]},
//   "requires": ["elements > 0"],
//   "examples": [[[4096, 1024]]]
// }

// gelu_naive.cu with its left end: below -8 tanh is -1 in float32, and the result 0. A NaN is not
// below -8.
extern "C" __global__ void gelu(const T* x, T* y, long long elements) {
  const long long i = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= elements) return;
  const float v = static_cast<float>(x[i]);
  const float bent = 0.7978845608f * (v + 0.044715f * v * v * v);
  y[i] = static_cast<T>(v < -8.0f ? 0.0f : 0.5f * v * (1.0f + tanhf(bent)));
}
