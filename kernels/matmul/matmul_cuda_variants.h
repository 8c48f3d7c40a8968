// The numbered kernels that the GPU's tiled implementations are compiled as. The implementations
// instantiate these, find the number of their choice, and name it. Plain C++.
#pragma once

#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul_cuda_select.h"
#include "proto/common/check.h"

namespace warpcall::matmul {

struct TiledVariant {
  bool in_vectors;  // operands are read 16 bytes at a time; their rows must be whole vectors
  int tile;         // index into the table for `in_vectors`
  Adjacent a;
  Adjacent b;
  bool cut;  // k is cut into two runs or more, whose sums another kernel adds up
};

// The number of layouts of two operands.
inline constexpr int kLayouts = 4;

// The variants of one implementation and data type: for each tile of `vector_tiles`, then of
// `element_tiles`, each layout, whole and cut. Variants 2 i and 2 i + 1 share kernel i.
struct TiledVariants {
  std::span<const Tile> vector_tiles;
  std::span<const Tile> element_tiles;
  // Number of layouts, the first ones, that kernels of element_tiles are compiled for.
  int element_layouts;
  // If true, kernels exist for the last layout only, k adjacent in both operands, as in linear;
  // with `turned` also for the first, that of copies.
  bool along_k = false;
  bool turned = false;

  constexpr int LayoutsFor(bool in_vectors) const {
    if (along_k) return turned ? 2 : 1;
    return in_vectors ? kLayouts : element_layouts;
  }
  constexpr int VectorKernels() const {
    return static_cast<int>(vector_tiles.size()) * LayoutsFor(true);
  }
  constexpr int Kernels() const {
    return VectorKernels() + static_cast<int>(element_tiles.size()) * LayoutsFor(false);
  }
  constexpr int Count() const { return 2 * Kernels(); }

  constexpr TiledVariant At(int number) const {
    WARPCALL_DCHECK(number >= 0 && number < Count(), number, Count());
    int kernel = number / 2;
    const bool in_vectors = kernel < VectorKernels();
    if (!in_vectors) kernel -= VectorKernels();
    const int layouts = LayoutsFor(in_vectors);
    const int layout = along_k && kernel % layouts == 0 ? kLayouts - 1
                       : along_k                        ? 0
                                                        : kernel % layouts;
    return {.in_vectors = in_vectors,
            .tile = kernel / layouts,
            .a = layout / 2 == 0 ? Adjacent::kOuter : Adjacent::kDepth,
            .b = layout % 2 == 0 ? Adjacent::kOuter : Adjacent::kDepth,
            .cut = number % 2 == 1};
  }

  constexpr int NumberOf(const TiledVariant& variant) const {
    const int layout =
        along_k ? (variant.a == Adjacent::kDepth ? 0 : 1)
                : (variant.a == Adjacent::kDepth ? 2 : 0) + (variant.b == Adjacent::kDepth ? 1 : 0);
    const int kernel = (variant.in_vectors ? 0 : VectorKernels()) +
                       variant.tile * LayoutsFor(variant.in_vectors) + layout;
    WARPCALL_DCHECK(kernel < Kernels(), kernel, Kernels());
    return 2 * kernel + (variant.cut ? 1 : 0);
  }

  constexpr std::span<const Tile> TilesFor(bool in_vectors) const {
    return in_vectors ? vector_tiles : element_tiles;
  }
  constexpr const Tile& TileOf(const TiledVariant& variant) const {
    WARPCALL_DCHECK(static_cast<size_t>(variant.tile) < TilesFor(variant.in_vectors).size(),
                    variant.tile);
    return TilesFor(variant.in_vectors)[variant.tile];
  }
};

inline constexpr TiledVariants kMmaVariants{kMmaTiles, kMmaElementTiles, kLayouts};
// An operand whose k is adjacent is always copied element by element. In the last layout both are,
// so it has only one kernel.
inline constexpr TiledVariants kRegisterVariants{kRegisterTiles, kRegisterTiles, kLayouts - 1};
// Elements of 16 bits are always copied one by one: there is only one set of tiles.
inline constexpr TiledVariants kRegisterNarrowVariants{kRegisterNarrowTiles, {}, kLayouts};

// "128x256x64 a[m,k] b[k,n] vectors cut"
inline std::string NameOf(const TiledVariants& variants, int number) {
  const TiledVariant variant = variants.At(number);
  const Tile& tile = variants.TileOf(variant);
  return absl::StrCat(tile.m, "x", tile.n, "x", tile.depth,
                      variant.a == Adjacent::kDepth ? " a[m,k]" : " a[k,m]",
                      variant.b == Adjacent::kDepth ? " b[n,k]" : " b[k,n]",
                      variants.element_tiles.empty() ? ""
                      : variant.in_vectors           ? " vectors"
                                                     : " elements",
                      variant.cut ? " cut" : " whole");
}

// A variant of dot_per_output: the matrix's layout, how it is read, and which operand it is.
struct DotVariant {
  Adjacent matrix;
  bool in_vectors;
  bool a_is_vector;  // m = 1; otherwise n = 1
  bool cut;
};

inline constexpr int kDotVariants = 16;
// Variants that share a kernel: they differ in the last two members only.
inline constexpr int kDotVariantsPerKernel = 4;
inline constexpr int kDotKernels = kDotVariants / kDotVariantsPerKernel;

// The variant with this number. Its kernel is number / kDotVariantsPerKernel.
constexpr DotVariant DotVariantAt(int number) {
  WARPCALL_DCHECK(number >= 0 && number < kDotVariants, number);
  return {.matrix = number / 8 % 2 == 0 ? Adjacent::kOuter : Adjacent::kDepth,
          .in_vectors = number / 4 % 2 == 1,
          .a_is_vector = number / 2 % 2 == 1,
          .cut = number % 2 == 1};
}

constexpr int NumberOf(const DotVariant& variant) {
  return (variant.matrix == Adjacent::kDepth ? 8 : 0) + (variant.in_vectors ? 4 : 0) +
         (variant.a_is_vector ? 2 : 0) + (variant.cut ? 1 : 0);
}

inline std::string NameOf(const DotVariant& variant) {
  return absl::StrCat(variant.a_is_vector ? "b" : "a",
                      variant.matrix == Adjacent::kDepth ? " k adjacent" : " k apart",
                      variant.in_vectors ? " vectors" : " elements",
                      variant.cut ? " cut" : " whole");
}

}  // namespace warpcall::matmul
