#include "kernels/matmul/matmul_simd_tiles.h"

#include <cstdint>

#include "kernels/cpu/amx.h"
#include "kernels/matmul/matmul_simd_tile_loop.h"

namespace warpcall::matmul::tiles {
namespace {

// Intel SDM, LDTILECFG: tiles 0 to 7 as 16 rows of 64 bytes.
struct alignas(64) Configuration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Configuration) == 64);

// The processor's, by the assembler: compilers' own functions take literals alone.
struct Amx {
  // The tiles are this thread's while it lives, and others' to configure before and after.
  class Session {
   public:
    Session() {
      static constexpr Configuration kConfiguration;
      asm volatile("ldtilecfg %0" : : "m"(kConfiguration));
    }
    ~Session() { asm volatile("tilerelease"); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
  };

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void Load(const void* from, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void Store(void* to, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kSums, int kA, int kB>
  static void AddProducts() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace

bool Available() {
  static const bool available = pairs::Available() && cpu::HasBf16Tiles(cpu::ReadAmxFacts());
  return available;
}

void MultiplyTile(int64_t rows, int64_t columns, const pairs::Tile& tile) {
  MultiplyByTiles<Amx>(rows, columns, tile);
}

}  // namespace warpcall::matmul::tiles
