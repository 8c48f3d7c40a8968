// Shared by wgmma_tiled's kernel and the code that writes its outputs: a variant's sizes, the parts
// of a block's shared memory, and the places of tiles.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_arguments.h"
#include "kernels/matmul/matmul_cuda_wgmma_ptx.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_tiles.h"

namespace warpcall::matmul {

// A kernel's compile-time parameters, as a type: nvcc 13.0 takes no values of class type as
// parameters of kernels.
template <int kTileIndex, Adjacent kAdjacentA, Adjacent kAdjacentB>
struct WgmmaVariant {
  static constexpr WgmmaTile kTile = kWgmmaTiles[kTileIndex];
  static constexpr Adjacent kA = kAdjacentA;
  static constexpr Adjacent kB = kAdjacentB;
};

// The variant of that number.
template <int kNumber, WgmmaLayouts kLayouts = WgmmaLayouts::kAll,
          WgmmaChoice kAt = WgmmaVariants{kLayouts}.At(kNumber)>
using WgmmaVariantAt = WgmmaVariant<kAt.tile, kAt.a, kAt.b>;

template <typename T, typename Variant>
struct WgmmaShape {
  static constexpr WgmmaTile kTile = Variant::kTile;
  static constexpr int kConsumers = kTile.consumers();
  static constexpr int kConsumerWarps = kConsumers * 4;
  static constexpr int kBlocks = kTile.blocks;  // in the cluster
  static constexpr int kAcross = kTile.across();
  static constexpr int kSplits = kTile.splits();
  static constexpr uint32_t kRowBytes = kWgmmaRowBytes;
  static constexpr uint32_t kDepth = kRowBytes / sizeof(T);
  // Outer indices in a box where k is not adjacent; the box has as many rows.
  static constexpr uint32_t kChunk = kDepth;
  static constexpr uint32_t kChunkBytes = kChunk * kRowBytes;
  static constexpr uint32_t kConsumerBytesA = 64 * kRowBytes;
  static constexpr uint32_t kBytesA = kTile.m * kRowBytes;
  static constexpr uint32_t kBytesB = kTile.n * kRowBytes;
  static constexpr uint32_t kStageBytes = kBytesA + kBytesB;  // at most
  static constexpr uint32_t kShareB = kTile.n / kAcross;      // copied by a block for its cluster
  static constexpr uint32_t kSteps = kRowBytes / 32;          // each 32 bytes of k
  static constexpr uint32_t kBoxRows = kWgmmaBoxRows;
  static constexpr uint32_t kBoxColumns = kRowBytes / sizeof(T);
  static constexpr uint32_t kBoxBytes = kBoxRows * kRowBytes;
  static constexpr int kBoxes = kTile.n / kBoxColumns;
  // Groups of 8 columns, 4 sums a thread. Each block that shares a tile writes a run of them.
  static constexpr uint32_t kGroups = kTile.n / 8;
  static constexpr uint32_t kOwnGroups = kGroups / kSplits;

  static constexpr bool kIsNarrow = sizeof(T) == 2;
  // Tensor cores take tf32's operands along k. Registers turn an a that lies across k, and then c
  // lies across the sums: a's outer index is adjacent.
  static constexpr bool kIsTurned = !kIsNarrow && Variant::kA == Adjacent::kOuter;
  // A class of a's rows moves the terms of k by some elements, and so the boxes of b. These may
  // begin at any row of b[k,n], but only at every eighth term of b[n,k].
  static constexpr bool kTakesClasses = kIsNarrow && kSplits == 1 &&
                                        Variant::kA == Adjacent::kDepth &&
                                        Variant::kB == Adjacent::kOuter;
  static_assert(kIsNarrow || Variant::kB == Adjacent::kDepth, "b of tf32 lies along k");
  static_assert(kTile.m % 64 == 0 && kTile.m <= 256);
  static_assert(kTile.n % kBoxColumns == 0);
  static_assert(kTile.n <= 256 && kShareB % 8 == 0 && kGroups % kSplits == 0);

  using Sums = float[kTile.n / 2];

  // Parts of a block's shared memory.
  struct Memory {
    uint32_t ring;

    __device__ uint32_t Stage(uint32_t slot) const {
      WARPCALL_DEVICE_CHECK(slot < kTile.stages, slot);
      return ring + slot * kStageBytes;
    }
    __device__ uint32_t Out() const { return ring + kTile.stages * kStageBytes; }
    __device__ uint32_t Boxes(uint32_t warp) const {
      WARPCALL_DEVICE_CHECK(warp < kConsumerWarps, warp);
      return Out() + warp * 2 * kBoxBytes;
    }
    // The place in block `owner` of the sums that block `rank` sends.
    __device__ uint32_t SumsFrom(uint32_t rank, uint32_t owner, uint32_t group) const {
      WARPCALL_DEVICE_CHECK(rank != owner && rank < kSplits && owner < kSplits, rank, owner);
      WARPCALL_DEVICE_CHECK(group < kOwnGroups, group);
      const uint32_t part = rank < owner ? rank : rank - 1;
      return Out() + ((part * kOwnGroups + group) * kConsumers * 128 + threadIdx.x - 128) * 16;
    }
    __device__ uint32_t Full(uint32_t slot) const {
      WARPCALL_DEVICE_CHECK(slot <= 2 * kTile.stages, slot);
      return Out() + WgmmaOutBytes(kTile) + slot * 8;
    }
    __device__ uint32_t Empty(uint32_t slot) const {
      WARPCALL_DEVICE_CHECK(slot < kTile.stages, slot);
      return Full(kTile.stages + slot);
    }
    // The last barrier, or the number of the cluster's run: tiles are cut or shared.
    __device__ uint32_t Gathered() const { return Full(2 * kTile.stages); }
    __device__ uint32_t Run() const { return Full(2 * kTile.stages); }
  };

  // A tile's corner, and its batch's matrices.
  struct Place {
    int32_t row_class;  // 0 unless a is read in classes of rows
    int32_t past;       // columns of the class's map before its rows begin
    int32_t m;          // counts rows of the class
    int32_t n;
    int32_t a;
    int32_t b;
    int32_t c;
  };

  __device__ static Place PlaceOfWork(const WgmmaArguments& arguments, uint32_t index) {
    WARPCALL_DEVICE_CHECK(index < arguments.of.work, index, arguments.of.work);
    const uint32_t rows = (arguments.of.tiles_m + kAcross - 1) / kAcross;
    const uint32_t tiles = rows * arguments.of.tiles_n;
    uint32_t batch = index / tiles;
    const TilePlace tile =
        PlaceOf(index % tiles, rows, arguments.of.tiles_n, arguments.of.group_rows);
    const bool in_classes = ReadsInClasses(arguments);
    // Clusters that are neighbours along m have the classes of the same rows of a and c.
    const uint32_t row_class = in_classes ? tile.m % kWgmmaClasses : 0;
    const uint32_t row = in_classes ? tile.m / kWgmmaClasses : tile.m;
    Place place{.row_class = static_cast<int32_t>(row_class),
                .past = static_cast<int32_t>(row_class * arguments.of.a_past % kWgmmaClasses),
                .m = static_cast<int32_t>((row * kAcross + (kAcross > 1 ? Rank() : 0)) * kTile.m),
                .n = static_cast<int32_t>(tile.n * kTile.n),
                .a = 0,
                .b = 0,
                .c = static_cast<int32_t>(batch)};
    for (int i = arguments.of.batch.rank - 1; i >= 0; --i) {
      const auto size = static_cast<uint32_t>(arguments.of.batch.size[i]);
      const auto at = static_cast<int32_t>(batch % size);
      batch /= size;
      place.a += at * static_cast<int32_t>(arguments.of.batch.a_stride[i]);
      place.b += at * static_cast<int32_t>(arguments.of.batch.b_stride[i]);
    }
    return place;
  }

  __device__ static bool ReadsInClasses(const WgmmaArguments& arguments) {
    return kTakesClasses && arguments.of.a_past > 0;
  }
  // Rows of c from one row of a tile to the next.
  __device__ static int32_t RowsApart(const WgmmaArguments& arguments) {
    return ReadsInClasses(arguments) ? kWgmmaClasses : 1;
  }

  __device__ static uint32_t Rank() { return kBlocks == 1 ? 0 : ClusterRank(); }

  // The first of a thread's two rows of its warpgroup's 64, where rows are turned. The other
  // is the next row, and a half-warp's pairs of 4 terms of k touch each bank of swizzled
  // shared memory once. Otherwise the thread has row lane / 4 of its warp's 16, and the 8th
  // below.
  __device__ static uint32_t TurnedRow() {
    const uint32_t group = threadIdx.x % 32 / 4;
    const uint32_t warp = threadIdx.x / 32 % 4;
    const uint32_t fours = warp % 2 * 2 + group / 4 + group / 2 % 2 * 4;
    return warp / 2 * 32 + fours * 4 + group % 2 * 2;
  }
};

}  // namespace warpcall::matmul
