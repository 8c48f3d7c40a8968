#include "kernels/cpu/onednn_isa.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"

namespace warpcall::onednn {
namespace {

// Names as in oneDNN, without "all" and those with AMX.
constexpr absl::string_view kWithoutAmx[] = {
    "sse41", "avx", "avx2", "avx2_vnni", "avx512_core", "avx512_core_vnni", "avx512_core_bf16"};

}  // namespace

std::optional<dnnl::cpu_isa> IsaLimit(const cpu::AmxFacts& facts, absl::string_view asked) {
  if (!cpu::ShowsAmx(facts) || cpu::TilesWork(facts)) return std::nullopt;
  if (absl::c_linear_search(kWithoutAmx, absl::AsciiStrToLower(asked))) return std::nullopt;
  return dnnl::cpu_isa::avx512_core_bf16;
}

}  // namespace warpcall::onednn
