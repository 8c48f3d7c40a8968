// Phases as ranges of NVTX, for NVIDIA's tools: domain "warpcall", the request's id as payload.
#pragma once

#include "server/engine/phases.h"

namespace warpcall {

// What the tool attached to this process is told of phases; null when there is none, which is what
// a tool's environment variable NVTX_INJECTION64_PATH says. Thread-safe; good for the life of the
// process.
const PhaseWatcher* NvtxPhaseWatcher();

}  // namespace warpcall
