#include "kernels/cpu/onednn_isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "kernels/cpu/bf16_pairs.h"

namespace warpcall::onednn {
namespace {

// Intel SDM volume 1, chapter 18: AMX's flags, its palettes and its state.
constexpr uint32_t kLeafOfTiles = 0x1D;
constexpr uint32_t kAnyAmx = 1u << 22 | 1u << 24 | 1u << 25;
constexpr int kTileData = 18;
constexpr uint64_t kTileState = uint64_t{1} << 17 | uint64_t{1} << kTileData;

// Linux's arch_prctl, Documentation/arch/x86/xstate.rst.
constexpr int kGetPermission = 0x1022;
constexpr int kRequestPermission = 0x1023;

// As oneDNN knows them, without "all" and those with AMX.
constexpr absl::string_view kWithoutAmx[] = {
    "sse41", "avx", "avx2", "avx2_vnni", "avx512_core", "avx512_core_vnni", "avx512_core_bf16"};

bool AmxWorks(const AmxFacts& facts) {
  return facts.leaf_max >= kLeafOfTiles && facts.palette_max > 0 &&
         (facts.xcr0 & kTileState) == kTileState && facts.permitted;
}

bool Permitted() {
  syscall(SYS_arch_prctl, kRequestPermission, kTileData);  // the next call tells what came of it
  uint64_t granted = 0;
  return syscall(SYS_arch_prctl, kGetPermission, &granted) == 0 && (granted >> kTileData & 1) != 0;
}

}  // namespace

AmxFacts ReadAmxFacts() {
  AmxFacts facts;
  uint32_t a, b, c, d;
  facts.leaf_max = __get_cpuid_max(0, nullptr);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) facts.features = d;
  if ((facts.features & kAnyAmx) == 0) return facts;
  if (__get_cpuid_count(kLeafOfTiles, 0, &a, &b, &c, &d) != 0) facts.palette_max = a;
  facts.xcr0 = cpu::ReadXcr0();
  facts.permitted = Permitted();
  return facts;
}

std::optional<dnnl::cpu_isa> IsaLimit(const AmxFacts& facts, absl::string_view asked) {
  if ((facts.features & kAnyAmx) == 0 || AmxWorks(facts)) return std::nullopt;
  if (absl::c_linear_search(kWithoutAmx, absl::AsciiStrToLower(asked))) return std::nullopt;
  return dnnl::cpu_isa::avx512_core_bf16;
}

}  // namespace warpcall::onednn
