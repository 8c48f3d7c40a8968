// Phases as ranges of NVTX, for NVIDIA's tools: domain "warpcall", the request's id as payload.
#pragma once

#include "server/engine/phases.h"

namespace warpcall {

// Returns the watcher that reports phases to the tool attached to this process. Null if the tool's
// environment variable NVTX_INJECTION64_PATH is unset or empty. Thread-safe; valid for the life of
// the process.
const PhaseWatcher* NvtxPhaseWatcher();

}  // namespace warpcall
