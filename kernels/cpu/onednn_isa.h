// Which of oneDNN's instruction sets this machine can really run. oneDNN 2.6 asks for the flags of
// AMX and the system's permission, then configures tiles by the palette that CPUID leaf 0x1D names.
// Under a hypervisor that shows the flags and hides the leaf it configures palette 0, which is no
// tiles at all, and its first tile instruction ends the process by SIGILL.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace warpcall::onednn {

// What the processor and the system say about AMX.
struct AmxFacts {
  uint32_t leaf_max = 0;     // CPUID leaf 0, EAX
  uint32_t features = 0;     // CPUID leaf 7, EDX: bit 22 AMX-BF16, 24 AMX-TILE, 25 AMX-INT8
  uint32_t palette_max = 0;  // CPUID leaf 0x1D, EAX; means nothing beyond leaf_max
  uint64_t xcr0 = 0;         // bits 17 and 18: the system keeps the tiles' state
  bool permitted = false;    // the system lets this process use the tiles' state
};

// Asks the system for its permission, as oneDNN does.
AmxFacts ReadAmxFacts();

// What oneDNN must be limited to, empty when its own choice is right. `asked` is what the user set
// as ONEDNN_MAX_CPU_ISA: a limit without AMX stands.
std::optional<dnnl::cpu_isa> IsaLimit(const AmxFacts& facts, absl::string_view asked);

}  // namespace warpcall::onednn
