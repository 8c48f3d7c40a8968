// Writes wgmma_tiled's outputs: through shared memory by the tensor memory accelerator, or straight
// from registers where outputs are few or lie across the sums.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/joined.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_arguments.h"
#include "kernels/matmul/matmul_cuda_wgmma_ptx.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_shape.cuh"

namespace warpcall::matmul {

template <typename T, typename Variant>
struct WgmmaStore : WgmmaShape<T, Variant> {
  using Shape = WgmmaShape<T, Variant>;
  using Shape::kBoxBytes;
  using Shape::kBoxColumns;
  using Shape::kBoxes;
  using Shape::kBoxRows;
  using Shape::kConsumerWarps;
  using Shape::kGroups;
  using Shape::kIsNarrow;
  using Shape::kIsTurned;
  using Shape::kOwnGroups;
  using Shape::kRowBytes;
  using Shape::kSplits;
  using Shape::kTile;
  using typename Shape::Memory;
  using typename Shape::Place;
  using typename Shape::Sums;
  static constexpr bool kIsDirect = kSplits > 1 || kIsTurned;

  static constexpr int kBoxGroups = kBoxColumns / 8;

  // A thread's bias for the columns that its block writes of a tile, two neighbours of each 8.
  struct Bias {
    uint32_t pairs[kOwnGroups];
  };
  template <typename Finish>
  static constexpr bool kHasBias = !std::is_same_v<Finish, NoFinish>;

  // Asks for a tile's bias before its products are made, so that nobody waits for it after them. It
  // is 0 beyond the columns of c.
  template <typename Finish>
  __device__ static void LoadBias(const Finish& finish, int64_t n, int64_t columns, Bias* bias) {
    const int64_t first =
        n + (kSplits > 1 ? Shape::Rank() * kOwnGroups * 8 : 0) + threadIdx.x % 4 * 2;
    const T* const from = finish.bias + first;
    if (columns % 2 == 0) {  // no pair lies half beyond the bias
#pragma unroll
      for (uint32_t i = 0; i < kOwnGroups; ++i)
        bias->pairs[i] =
            first + i * 8 < columns ? *reinterpret_cast<const uint32_t*>(from + i * 8) : 0;
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kOwnGroups; ++i) {
      const uint32_t low = first + i * 8 < columns ? from[i * 8].bits : 0;
      const uint32_t high = first + i * 8 + 1 < columns ? from[i * 8 + 1].bits : 0;
      bias->pairs[i] = low | high << 16;
    }
  }

  // Bias and the like, on the warp's rows of kCount x 8 columns.
  template <uint32_t kCount, typename Finish>
  __device__ static void Apply(const Finish& finish, const uint32_t* pairs, float* sums) {
    typename Finish::template BiasOfColumns<kCount * 4> bias;
    float values[kCount * 4];
#pragma unroll
    for (uint32_t i = 0; i < kCount * 4; i += 2)
      cuda::WidenPair<T>(pairs[i / 4], &bias.values[i], &bias.values[i + 1]);
#pragma unroll
    for (uint32_t i = 0; i < kCount * 4; ++i) values[i] = sums[i];
    finish.Apply(bias, values);
#pragma unroll
    for (uint32_t i = 0; i < kCount * 4; ++i) sums[i] = values[i];
  }

  // Bias and the like, on the sums of box i.
  template <typename Finish>
  __device__ static void FinishBox(int i, const Finish& finish, const Bias& bias, Sums& sums) {
    finish.Visit([&](const auto& known) {
#pragma unroll
      for (int j = 0; j < kBoxGroups; j += 2)
        Apply<2>(known, &bias.pairs[i * kBoxGroups + j], &sums[(i * kBoxGroups + j) * 4]);
    });
  }

  // A thread's outputs in a box: pairs of neighbours in 16 bits, or sums.
  static constexpr int kWords = 16;
  using Word = std::conditional_t<kIsNarrow, uint32_t, float>;
  static_assert(kBoxColumns * kBoxRows * sizeof(T) == kWords * 32 * sizeof(Word));

  __device__ static void Round(const float* sums, Word (&words)[kWords]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kIsNarrow) {
        words[i] = cuda::NarrowPair<T>(sums[2 * i], sums[2 * i + 1]);
      } else {
        words[i] = sums[i];
      }
    }
  }

  // Fills a box with the warp's rows. Its 128-byte rows are swizzled as copies have it: chunks of
  // 16 bytes exclusive-ored with the row.
  __device__ static void Fill(uint32_t box, const Word (&words)[kWords]) {
    WARPCALL_DEVICE_CHECK(box % 1024 == 0, box);
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < kWords; i += 4) {
      if constexpr (kIsNarrow) {
        const uint32_t four[] = {words[i], words[i + 1], words[i + 2], words[i + 3]};
        const uint32_t row = lane % 16;
        const uint32_t chunk = i / 2 + lane / 16;
        StoreMatrices(box + row * kRowBytes + (chunk ^ row % 8) * 16, four);
      } else {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) {
          const uint32_t row = lane / 4 + j * 8;
          const uint32_t chunk = i / 2 + lane % 4 / 2;
          StoreShared64(box + row * kRowBytes + (chunk ^ row % 8) * 16 + lane % 2 * 8,
                        words[i + 2 * j], words[i + 2 * j + 1]);
        }
      }
    }
  }

  // Element (row, column) of the box to its place in c, whose first element in the box's row is
  // *to.
  __device__ static void StoreElement(uint32_t box, uint32_t row, uint32_t column, T* to) {
    constexpr uint32_t kWidth = 16 / sizeof(T);
    const uint32_t from = box + row * kRowBytes + (column / kWidth ^ row % 8) * 16 +
                          column % kWidth * static_cast<uint32_t>(sizeof(T));
    if constexpr (kIsNarrow) {
      to[column] = {LoadShared16(from)};
    } else {
      to[column] = LoadSharedFloat(from);
    }
  }

  // Stores the box for c whose rows are not whole vectors: each row by the aligned vectors of c
  // that lie in it, joined of two of the box's, and by the elements at both ends.
  __device__ static void StoreElements(uint32_t box, const WgmmaArguments& arguments,
                                       const Coordinates& at) {
    constexpr uint32_t kWidth = 16 / sizeof(T);
    constexpr uint32_t kVectors = kRowBytes / 16;
    T* const out = static_cast<T*>(arguments.out) + at.z * arguments.of.m * arguments.of.n;
    const uint32_t lane = threadIdx.x % 32;
    const auto apart = static_cast<uint32_t>(Shape::RowsApart(arguments));
    const int64_t rows = arguments.of.m - at.y;
    const int64_t columns = arguments.of.n - at.x;
    const auto row_of_c = [&](uint32_t row) {
      return out + (at.y + row * apart) * arguments.of.n + at.x;
    };
    if (columns < kBoxColumns) {
#pragma unroll 4
      for (uint32_t i = lane; i < kBoxRows * kBoxColumns; i += 32)
        if (i / kBoxColumns * apart < rows && i % kBoxColumns < columns)
          StoreElement(box, i / kBoxColumns, i % kBoxColumns, row_of_c(i / kBoxColumns));
      return;
    }
#pragma unroll 4
    for (uint32_t i = lane; i < kBoxRows * kVectors; i += 32) {
      const uint32_t row = i / kVectors;
      const uint32_t vector = i % kVectors;
      if (row * apart >= rows) continue;
      char* const to = reinterpret_cast<char*>(row_of_c(row));
      const auto past = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) % 16);
      if (past > 0 && vector == 0) continue;
      const uint32_t from = box + row * kRowBytes;
      uint4 joined = LoadShared128(from + (vector ^ row % 8) * 16);
      if (past > 0)
        joined =
            cuda::Joined(LoadShared128(from + ((vector - 1) ^ row % 8) * 16), joined, 16 - past);
      *reinterpret_cast<uint4*>(to - past + vector * 16) = joined;
    }
#pragma unroll 4
    for (uint32_t i = lane; i < kBoxRows * kWidth; i += 32) {
      const uint32_t row = i / kWidth;
      T* const to = row_of_c(row);
      const auto past = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) % 16 / sizeof(T));
      if (row * apart >= rows || past == 0) continue;
      const uint32_t head = kWidth - past;
      const uint32_t column = i % kWidth;
      StoreElement(box, row, column < head ? column : kBoxColumns - kWidth + column, to);
    }
  }

  // The place of a tile's outputs.
  struct OutputTile {
    const WgmmaArguments& arguments;
    const Place place;
  };

  // With the epilogue that they go through.
  template <typename Finish>
  struct Target : OutputTile {
    const Finish& finish;
    const Bias& bias;
  };

  // Stores box i of the warp's rows of a tile. It is copied while the next is filled.
  __device__ static void StoreBoxOf(int i, const Memory& memory, const Word (&words)[kWords],
                                    const OutputTile& tile) {
    const WgmmaArguments& arguments = tile.arguments;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t box = memory.Boxes(threadIdx.x / 32 - 4) + i % 2 * kBoxBytes;
    const int32_t warp = threadIdx.x / 32 - 4;
    const int32_t row =
        (tile.place.m + warp * static_cast<int32_t>(kBoxRows)) * Shape::RowsApart(arguments) +
        tile.place.row_class;
    const Coordinates at = {tile.place.n + i * static_cast<int32_t>(kBoxColumns), row,
                            tile.place.c};
    // A tile's first box may be the one that was stored last.
    if (lane == 0) i == 0 ? WaitForStoresToRead<0>() : WaitForStoresToRead<1>();
    __syncwarp();
    Fill(box, words);
    FenceForCopies();
    __syncwarp();
    if (!arguments.of.c_in_boxes) {
      StoreElements(box, arguments, at);
    } else if (lane == 0) {
      StoreBox(&arguments.c, at, box);
      CommitStores();
    }
  }

  // Two neighbours of a row of c, of which `left` elements begin there.
  __device__ static void StorePair(T* to, const float* pair, int64_t left, bool in_pairs) {
    WARPCALL_DEVICE_CHECK(!in_pairs || reinterpret_cast<uintptr_t>(to) % (2 * sizeof(T)) == 0);
    if (left <= 0) return;
    if (!in_pairs) {
      to[0] = cuda::Narrow<T>(pair[0]);
      if (left > 1) to[1] = cuda::Narrow<T>(pair[1]);
    } else if constexpr (kIsNarrow) {
      *reinterpret_cast<uint32_t*>(to) = cuda::NarrowPair<T>(pair[0], pair[1]);
    } else {
      *reinterpret_cast<float2*>(to) = make_float2(pair[0], pair[1]);
    }
  }

  // A thread's sums of 8 columns from `n` on, straight from registers; its first row is `m`.
  template <typename Finish>
  __device__ static void StoreGroup(int64_t m, int64_t n, const float* sums,
                                    const Target<Finish>& target) {
    const WgmmaGeometry& of = target.arguments.of;
    T* const out = static_cast<T*>(target.arguments.out) + target.place.c * of.m * of.n;
    const int64_t column = n + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kIsTurned) {
        const float pair[2] = {sums[i], sums[2 + i]};
        if (column + i < of.n)
          StorePair(out + (column + i) * of.m + m, pair, of.m - m, of.c_in_boxes);
      } else {
        if (m + i * 8 < of.m)
          StorePair(out + (m + i * 8) * of.n + column, &sums[i * 2], of.n - column, of.c_in_boxes);
      }
    }
  }

  // To each other block that shares the tile the sums of the columns that it writes.
  __device__ static void Send(const Memory& memory, const Sums& sums) {
    const uint32_t rank = Shape::Rank();
#pragma unroll
    for (uint32_t i = 0; i < kGroups; ++i) {
      const uint32_t owner = i / kOwnGroups;
      if (owner == rank) continue;
      SendFour(memory.SumsFrom(rank, owner, i % kOwnGroups), memory.Gathered(), owner,
               &sums[i * 4]);
    }
  }

  // Adds to this block's sums of a group of columns those of the others, in the order of their
  // parts of k.
  __device__ static void AddUp(const Memory& memory, uint32_t group, float* sums) {
    WARPCALL_DEVICE_CHECK(group < kOwnGroups, group);
    const uint32_t own = Shape::Rank();
    float total[4] = {};
#pragma unroll
    for (uint32_t rank = 0; rank < kSplits; ++rank) {
      float four[4] = {sums[0], sums[1], sums[2], sums[3]};
      if (rank != own) {
        const uint4 sent = LoadShared128(memory.SumsFrom(rank, own, group));
        four[0] = __uint_as_float(sent.x);
        four[1] = __uint_as_float(sent.y);
        four[2] = __uint_as_float(sent.z);
        four[3] = __uint_as_float(sent.w);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) total[i] += four[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = total[i];
  }

  // Rows of a tile that warps share, and how many do.
  static constexpr int kSharedRows = kIsTurned ? 32 : 16;
  static constexpr int kSharing = kSharedRows / 16;

  // Each block of a cluster that shares a tile has sums of all of it, and writes some columns.
  template <typename Finish>
  __device__ static void StoreDirectly(const Memory& memory, Sums& sums,
                                       const Target<Finish>& target) {
    static_assert(!kIsTurned || !kHasBias<Finish>, "a bias goes along c's rows");
    const Place& place = target.place;
    const auto warp = static_cast<int32_t>(threadIdx.x / 32 - 4);
    if (place.m + warp / kSharing * kSharedRows >= target.arguments.of.m) return;
    const uint32_t rank = kSplits > 1 ? Shape::Rank() : 0;
    if constexpr (kSplits > 1) {
      Send(memory, sums);
      WaitForCluster(memory.Gathered(), 0);
    }
    const auto row = static_cast<int32_t>(kIsTurned ? Shape::TurnedRow() : threadIdx.x % 32 / 4);
    const int32_t m = place.m + (kIsTurned ? warp / 4 * 64 : warp * 16) + row;
#pragma unroll
    for (uint32_t i = 0; i < kGroups; ++i) {
      if (i / kOwnGroups != rank) continue;
      if constexpr (kSplits > 1) AddUp(memory, i % kOwnGroups, &sums[i * 4]);
      if constexpr (kHasBias<Finish>)
        Apply<1>(target.finish, &target.bias.pairs[i % kOwnGroups], &sums[i * 4]);
      StoreGroup<Finish>(m, place.n + static_cast<int32_t>(i * 8), &sums[i * 4], target);
    }
  }

  // Expects the other blocks' sums: those of every warp that has rows to write.
  __device__ static void ExpectSums(const Memory& memory, const WgmmaArguments& arguments,
                                    const Place& place) {
    WARPCALL_DEVICE_CHECK(place.m < arguments.of.m, place.m, arguments.of.m);
    const int64_t warps = (arguments.of.m - place.m + kSharedRows - 1) / kSharedRows * kSharing;
    const auto sending = static_cast<uint32_t>(warps < kConsumerWarps ? warps : kConsumerWarps);
    ArriveExpecting(memory.Gathered(), (kSplits - 1) * kOwnGroups * sending * 32 * 16);
  }
};

}  // namespace warpcall::matmul
