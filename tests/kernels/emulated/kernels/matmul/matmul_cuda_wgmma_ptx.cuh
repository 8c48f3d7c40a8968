// Stands in for kernels/matmul/matmul_cuda_wgmma_ptx.cuh on the CPU. That file's comments describe
// the functions.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "kernels/cuda/threads.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "tests/kernels/emulated/hopper.h"

namespace warpcall::emulated {

// Stands in for a tensor map.
struct MatrixMap {
  char* data;
  int64_t columns;
  int64_t rows;
  int64_t matrices;
  int64_t row_bytes;
  int32_t element_bytes;
  int32_t box_columns;
  int32_t box_rows;
};

inline MatrixMap MapIn(const CUtensorMap* map) {
  MatrixMap of;
  static_assert(sizeof(of) <= sizeof(*map));
  std::memcpy(&of, map, sizeof(of));
  return of;
}

}  // namespace warpcall::emulated

namespace warpcall::matmul {

inline uint32_t ClusterRank() { return emulated::Self().rank; }
inline void ClusterArrive() { emulated::ClusterArrive(); }
inline void ClusterWait() { emulated::ClusterWait(); }
inline void ClusterSync() {
  ClusterArrive();
  ClusterWait();
}

inline void StoreAt(uint32_t to, uint32_t rank, uint32_t word) {
  std::memcpy(emulated::SharedOf(rank, to, sizeof(word)), &word, sizeof(word));
}

inline void SendFour(uint32_t to, uint32_t barrier, uint32_t rank, const float* four) {
  std::memcpy(emulated::SharedOf(rank, to, 16), four, 16);
  emulated::CountBytes(rank, barrier, 16);
}

inline void InitBarrier(uint32_t barrier, uint32_t count) {
  emulated::InitBarrier(barrier, static_cast<int>(count));
}
inline void FenceBarrierInit() {}
inline void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  emulated::ArriveAt(emulated::Self().rank, barrier, bytes);
}
inline void Arrive(uint32_t barrier) { emulated::ArriveAt(emulated::Self().rank, barrier, 0); }
inline void ArriveAt(uint32_t barrier, uint32_t rank) { emulated::ArriveAt(rank, barrier, 0); }
inline void WaitFor(uint32_t barrier, uint32_t parity) {
  emulated::WaitUntil([&] { return emulated::HasEnded(barrier, parity); });
}
inline void WaitForCluster(uint32_t barrier, uint32_t parity) { WaitFor(barrier, parity); }

struct Coordinates {
  int32_t x;
  int32_t y;
  int32_t z;
};

struct Landing {
  uint32_t to;
  uint32_t barrier;
};

inline void PrefetchMap(const CUtensorMap*) {}

// Calls body(place in the tensor, or null, and in the box) for each element of a box. An H200 takes
// no box whose rows begin within a vector.
template <typename Body>
void ForBox(const emulated::MatrixMap& map, const Coordinates& at, const Body& body) {
  if (at.x * map.element_bytes % 16 != 0)
    emulated::Fail("a box begins at column " + std::to_string(at.x) + ", within a vector");
  for (int row = 0; row < map.box_rows; ++row) {
    for (int column = 0; column < map.box_columns; ++column) {
      const int64_t x = at.x + column;
      const int64_t y = at.y + row;
      const bool inside =
          x >= 0 && x < map.columns && y >= 0 && y < map.rows && at.z < map.matrices;
      const int64_t offset = (at.z * map.rows + y) * map.row_bytes + x * map.element_bytes;
      body(inside ? map.data + offset : nullptr,
           static_cast<uint32_t>(row * 128 + column * map.element_bytes));
    }
  }
}

inline void LoadBoxInto(uint32_t rank, const CUtensorMap* map, const Coordinates& at,
                        const Landing& landing) {
  const emulated::MatrixMap of = emulated::MapIn(map);
  const auto bytes = static_cast<size_t>(of.element_bytes);
  ForBox(of, at, [&](const char* from, uint32_t place) {
    char* const to = emulated::SharedOf(rank, emulated::Swizzled(landing.to + place), bytes);
    if (from == nullptr) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  });
  emulated::CountBytes(rank, landing.barrier,
                       int64_t{of.box_rows} * of.box_columns * of.element_bytes);
}

inline void LoadBox(const CUtensorMap* map, const Coordinates& at, const Landing& landing) {
  LoadBoxInto(emulated::Self().rank, map, at, landing);
}

inline void LoadBoxForAll(const CUtensorMap* map, const Coordinates& at, const Landing& landing,
                          uint16_t blocks) {
  for (uint32_t rank = 0; rank < 16; ++rank)
    if ((blocks >> rank & 1) != 0) LoadBoxInto(rank, map, at, landing);
}

inline void StoreBox(const CUtensorMap* map, const Coordinates& at, uint32_t from) {
  emulated::Self().stores.Add([of = emulated::MapIn(map), at, from] {
    const auto bytes = static_cast<size_t>(of.element_bytes);
    ForBox(of, at, [&](char* to, uint32_t place) {
      if (to != nullptr)
        std::memcpy(to, emulated::Shared(emulated::Swizzled(from + place), bytes), bytes);
    });
  });
}

inline void CommitStores() { emulated::Self().stores.Commit(); }
template <int kPending>
void WaitForStoresToRead() {
  emulated::Self().stores.WaitForAllBut(kPending);
}
inline void FenceForCopies() {
  emulated::Self().writes.Commit();
  emulated::Self().writes.WaitForAllBut(0);
}

inline void SyncWarpgroup() {
  // Beyond the names that __syncwarp takes.
  emulated::Meet(64 + static_cast<int>(threadIdx.x) / 128, 128);
}

template <int kRegisters>
void TakeRegisters() {}
template <int kRegisters>
void GiveRegisters() {}

inline void StoreMatrices(uint32_t address, const uint32_t (&registers)[4]) {
  const uint32_t lane = threadIdx.x % 32;
  std::vector<uint32_t>& addresses = emulated::Board(threadIdx.x / 32, 32);
  addresses[lane] = address;
  __syncwarp();
  for (uint32_t j = 0; j < 4; ++j)
    std::memcpy(emulated::Shared(addresses[8 * j + lane / 4] + lane % 4 * 4, 4), &registers[j], 4);
  __syncwarp();
}

inline void LoadShared64(uint32_t from, uint32_t* pair) {
  std::memcpy(pair, emulated::Shared(from, 8), 8);
}
inline float LoadSharedFloat(uint32_t from) { return LoadSharedAs<float>(from); }

}  // namespace warpcall::matmul
