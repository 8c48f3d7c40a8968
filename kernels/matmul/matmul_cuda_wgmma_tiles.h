// The tiles of wgmma_tiled. Plain C++, which the kernel and its host side share.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul_cuda_select.h"
#include "proto/common/check.h"

namespace warpcall::matmul {

// The relation between the blocks of a cluster.
enum class WgmmaCluster : uint8_t {
  kColumns,  // they are neighbours along m; each copies a part of the b that all multiply by
  kTile,     // one tile; each adds up a part of k, and the first block adds the sums of all
};

// The tile of a block. A warpgroup multiplies 64 rows of it.
struct WgmmaTile {
  int m;  // rows and columns of c
  int n;
  int stages;  // in the ring in shared memory, each of kWgmmaDepth terms of k
  int blocks;  // per cluster
  WgmmaCluster cluster;

  constexpr int consumers() const { return m / 64; }  // warpgroups that multiply
  constexpr int threads() const { return (consumers() + 1) * 128; }
  // Number of runs that sums are cut into.
  constexpr int splits() const { return cluster == WgmmaCluster::kTile ? blocks : 1; }
  // Number of blocks that are neighbours along m.
  constexpr int across() const { return cluster == WgmmaCluster::kColumns ? blocks : 1; }
  // True if all clusters can share the last tiles: of those that fill the tensor cores.
  constexpr bool may_share() const { return splits() == 1 && n == 256; }
};

// Bytes of a stage's rows, the size that the copies' swizzle is made for, along k or the outer
// index; boxes of outputs have such rows too.
inline constexpr int kWgmmaRowBytes = 128;
// Terms of k in a stage of 16-bit types. float32 has half as many, which take as long.
inline constexpr int kWgmmaDepth = 64;

// Number of classes that rows of a fall into, by their index, where the kernel reads 16-bit rows of
// any length k without a copy. A tensor map takes rows that are whole 16-byte vectors apart, and
// boxes that begin at a vector. Every eighth row of a is whole vectors from the last, so that each
// class has a tensor map of its own, and a tile holds rows of one class. Row i, the first of class
// i, begins i k % 8 elements past the begin of a vector, where the map begins:
//
//   class i's map  | end of row i - 1 | row i: k elements |
//
// The tile's first step of k multiplies the end of row i - 1, too. The box of b begins before b's
// first row then, and has zeros there. The kernel clears the end of row i - 1, since zero times
// infinity is none.
inline constexpr int kWgmmaClasses = 8;

// Outputs are written 16 rows of 128 bytes at a time. Every warp that multiplies writes through two
// such boxes in turn.
inline constexpr int kWgmmaBoxRows = 16;

// Tiles that fit 227 KiB. Per stage shared memory is written (m + n) x 128 bytes and read once by
// each warpgroup, (64 + n) x 128: at 128 bytes a cycle 1024 cycles for 128 x 256, as many as the
// tensor cores take for it, and 1.08, 1.25, 1.5 and 2 times as many for the tiles below. A block of
// 64 x 64 that shares its tile takes less than half of the 227 KiB: the next launch's blocks, which
// may begin early, have their barriers and maps ready when this launch's end.
inline constexpr WgmmaTile kWgmmaTiles[] = {
    {128, 256, 4, 1, WgmmaCluster::kColumns}, {128, 256, 4, 2, WgmmaCluster::kColumns},
    {128, 192, 4, 1, WgmmaCluster::kColumns}, {128, 192, 4, 2, WgmmaCluster::kColumns},
    {128, 128, 6, 1, WgmmaCluster::kColumns}, {128, 128, 6, 2, WgmmaCluster::kColumns},
    {64, 128, 8, 1, WgmmaCluster::kColumns},  {64, 128, 8, 2, WgmmaCluster::kColumns},
    {64, 64, 12, 1, WgmmaCluster::kColumns},  {64, 128, 8, 2, WgmmaCluster::kTile},
    {64, 128, 8, 4, WgmmaCluster::kTile},     {64, 64, 6, 2, WgmmaCluster::kTile},
    {64, 64, 6, 4, WgmmaCluster::kTile},      {64, 64, 6, 8, WgmmaCluster::kTile},
};
inline constexpr int kWgmmaTileCount = sizeof(kWgmmaTiles) / sizeof(kWgmmaTiles[0]);

// A variant: a tile and how the operands lie.
struct WgmmaChoice {
  int tile;
  Adjacent a;
  Adjacent b;
};

enum class WgmmaLayouts : uint8_t {
  kAll,
  kBAlongK,  // k adjacent in b: as tf32 has it
  kAlongK,   // in both: as linear has it
};

// The variants of an implementation, by number: each layout of each tile.
struct WgmmaVariants {
  WgmmaLayouts layouts = WgmmaLayouts::kAll;

  constexpr int ChoicesOfA() const { return layouts == WgmmaLayouts::kAlongK ? 1 : 2; }
  constexpr int ChoicesOfB() const { return layouts == WgmmaLayouts::kAll ? 2 : 1; }
  constexpr int Layouts() const { return ChoicesOfA() * ChoicesOfB(); }
  constexpr int Count() const { return kWgmmaTileCount * Layouts(); }
  constexpr WgmmaChoice At(int number) const {
    WARPCALL_DCHECK(number >= 0 && number < Count(), number, Count());
    const int layout = number % Layouts();
    return {.tile = number / Layouts(),
            .a = AdjacentBy(ChoicesOfA(), layout / ChoicesOfB()),
            .b = AdjacentBy(ChoicesOfB(), layout % ChoicesOfB())};
  }
  constexpr int NumberOf(const WgmmaChoice& variant) const {
    WARPCALL_DCHECK(variant.tile >= 0 && variant.tile < kWgmmaTileCount, variant.tile);
    return variant.tile * Layouts() + IndexBy(ChoicesOfA(), variant.a) * ChoicesOfB() +
           IndexBy(ChoicesOfB(), variant.b);
  }

 private:
  // The first of two choices is kOuter; a single choice is kDepth.
  static constexpr Adjacent AdjacentBy(int choices, int index) {
    return choices == 2 && index == 0 ? Adjacent::kOuter : Adjacent::kDepth;
  }
  static constexpr int IndexBy(int choices, Adjacent adjacent) {
    return choices == 2 && adjacent == Adjacent::kDepth ? 1 : 0;
  }
};

// Shared memory of a block: the ring; two boxes for every warp that multiplies, or the other
// blocks' sums of what this one writes of their tile; two barriers a stage, and one for those sums,
// in whose place tiles that are shared have the number of the cluster's run.
constexpr uint32_t WgmmaRingBytes(const WgmmaTile& tile) {
  return static_cast<uint32_t>(tile.stages * (tile.m + tile.n) * kWgmmaRowBytes);
}
constexpr uint32_t WgmmaOutBytes(const WgmmaTile& tile) {
  constexpr int kBoxBytes = kWgmmaBoxRows * kWgmmaRowBytes;
  if (tile.splits() == 1) return static_cast<uint32_t>(tile.consumers() * 4 * 2 * kBoxBytes);
  return static_cast<uint32_t>((tile.splits() - 1) * tile.m * tile.n / tile.splits() * 4);
}
inline constexpr uint32_t kWgmmaSharedBytesMax = 227 << 10;  // of a multiprocessor
constexpr uint32_t WgmmaSharedBytes(const WgmmaTile& tile) {
  return WgmmaRingBytes(tile) + WgmmaOutBytes(tile) + static_cast<uint32_t>(tile.stages * 16 + 8);
}

}  // namespace warpcall::matmul
