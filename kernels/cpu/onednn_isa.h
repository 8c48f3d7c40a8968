// Finds the oneDNN instruction sets that this machine can really run. oneDNN 2.6 checks the flags
// of AMX and the system's permission, then configures tiles by the palette that CPUID leaf 0x1D
// names. Under a hypervisor that shows the flags and hides the leaf, oneDNN configures palette 0,
// which has no tiles, and the first tile instruction ends the process by SIGILL.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "kernels/cpu/amx.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace warpcall::onednn {

// Returns the limit that oneDNN needs; empty when its own choice is right. `asked` is the user's
// ONEDNN_MAX_CPU_ISA: a limit without AMX stays in force.
std::optional<dnnl::cpu_isa> IsaLimit(const cpu::AmxFacts& facts, absl::string_view asked);

}  // namespace warpcall::onednn
