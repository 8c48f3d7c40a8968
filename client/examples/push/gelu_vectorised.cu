// warpcall-kernel {
//   "name": "gelu-vectorised",
//   "op": "gelu",
//   "attributes": {"approximate": "tanh"},
//   "types": ["float32", "float16", "bfloat16"],
//   "code": {"kind": "cuda", "entry": "gelu_vectorised"},
//   "args": ["x.ptr", "y.ptr", "elements:i64"],
//   "launch": {"grid": ["ceil(x.bytes / 4096)"], "block": [256]},
//   "requires": ["elements > 0"],
//   "examples": [[[4096, 1024]], [[1000003]]]
// }

// Memory bounds gelu: each element is read and written once. A thread takes 16 bytes, one load and
// one store for 4 elements of float32 and 8 of 16 bits; a block of 256 takes 4096 bytes. Operands
// begin at multiples of 16 bytes. The elements behind the last whole 16 bytes go one by one.
constexpr int kVector = 16 / sizeof(T);
struct alignas(16) Vector {
  T values[kVector];
};

// 0.5 (1 + tanh(a)) is 1 / (1 + exp(-2 a)): a division in place of tanhf's polynomials.
__device__ T gelu_of(T x) {
  const float v = static_cast<float>(x);
  const float bent = 0.7978845608f * (v + 0.044715f * v * v * v);
  return static_cast<T>(v < -8.0f ? 0.0f : v / (1.0f + expf(-2.0f * bent)));
}

extern "C" __global__ void gelu_vectorised(const T* x, T* y, long long elements) {
  const long long first = (static_cast<long long>(blockIdx.x) * 256 + threadIdx.x) * kVector;
  if (first + kVector <= elements) {
    Vector vector = *reinterpret_cast<const Vector*>(x + first);
    for (T& value : vector.values) value = gelu_of(value);
    *reinterpret_cast<Vector*>(y + first) = vector;
  } else {
    for (long long i = first; i < elements; ++i) y[i] = gelu_of(x[i]);
  }
}
