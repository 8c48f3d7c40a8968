// The rows of a server without GPUs, where nothing of the test's own is among them.
#pragma once

#include "kernels/graph/step_graph.h"
#include "kernels/registry.h"

namespace warpcall::testing {

inline const Registry& CpuKernels() {
  static const Registry& registry = *[] {
    auto* const created = new Registry;
    AddCpuKernels(created);
    return created;
  }();
  return registry;
}

// CpuKernels, by the same numbers, and graphs of them.
inline const Registry& CpuKernelsAndGraphs() {
  static const Registry& registry = *[] {
    auto* const created = new Registry;
    AddCpuKernels(created);
    AddGraphKernel({DeviceKind::kCpu}, created);
    return created;
  }();
  return registry;
}

}  // namespace warpcall::testing
