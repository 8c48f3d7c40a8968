// warpcall-kernel {
//   "name": "matmul-tiled",
//   "op": "matmul",
//   "types": ["float32"],
//   "code": {"kind": "cuda", "entry": "matmul_tiled"},
//   "args": ["a.ptr", "b.ptr", "c.ptr", "m:i64", "n:i64", "k:i64"],
//   "launch": {"grid": ["ceil(m / 64) * ceil(n / 64)"], "block": [256]},
//   "requires": ["a.rank == 2", "b.rank == 2", "m * n > 0"],
//   "examples": [[[512, 384], [384, 640]], [[129, 65], [65, 257]]]
// }

// A block makes a tile of c, 64 by 64 elements, and a thread 4 by 4 of them: four rows side by
// side, and every sixteenth column. The block copies 16 columns of a and 16 rows of b at a time to
// shared memory, with 0 for what lies outside of a and b, so that it reads an element once for 64
// products. a's tile lies transposed in rows of 65: with 64 the elements that a warp stores at once
// would share two banks.
constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kEach = 4;

extern "C" __global__ void matmul_tiled(const T* a, const T* b, T* c, long long m, long long n,
                                        long long k) {
  __shared__ float a_tile[kDepth][kTile + 1];
  __shared__ float b_tile[kDepth][kTile];
  const long long tile_columns = (n + kTile - 1) / kTile;
  const long long first_row = blockIdx.x / tile_columns * kTile;
  const long long first_column = blockIdx.x % tile_columns * kTile;
  const int i = threadIdx.x / 16 * kEach;
  const int j = threadIdx.x % 16;
  float sums[kEach][kEach] = {};
  for (long long first = 0; first < k; first += kDepth) {
    for (int at = threadIdx.x; at < kTile * kDepth; at += 256) {
      const long long row = first_row + at / kDepth;
      const long long p = first + at % kDepth;
      a_tile[at % kDepth][at / kDepth] = row < m && p < k ? a[row * k + p] : 0.0f;
    }
    for (int at = threadIdx.x; at < kTile * kDepth; at += 256) {
      const long long p = first + at / kTile;
      const long long column = first_column + at % kTile;
      b_tile[at / kTile][at % kTile] = p < k && column < n ? b[p * n + column] : 0.0f;
    }
    __syncthreads();
    for (int p = 0; p < kDepth; ++p)
      for (int u = 0; u < kEach; ++u)
        for (int v = 0; v < kEach; ++v) sums[u][v] += a_tile[p][i + u] * b_tile[p][j + 16 * v];
    __syncthreads();
  }
  for (int u = 0; u < kEach; ++u)
    for (int v = 0; v < kEach; ++v) {
      const long long row = first_row + i + u;
      const long long column = first_column + j + 16 * v;
      if (row < m && column < n) c[row * n + column] = sums[u][v];
    }
}
