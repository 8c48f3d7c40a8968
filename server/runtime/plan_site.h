// Makes rows' plans on a stream.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/plan.h"
#include "proto/common/check.h"
#include "server/runtime/device.h"

namespace warpcall {

// Resources with which a row may try candidates. Used by the stream's thread.
struct PlanSite {
  Stream* stream = nullptr;  // idle
  const DeviceProperties* device = nullptr;
  const Operands* operands = nullptr;  // the problem's; outputs may be written
  // Memory on the device that stays until the plan is made.
  absl::FunctionRef<absl::StatusOr<void*>(size_t)> workspace;
  const StopFlag* stop = nullptr;  // PlanContext's
  PlanCache* plans = nullptr;      // likewise
};

inline absl::StatusOr<PlanPtr> MakePlanOn(const PlanSite& site, const Implementation& row,
                                          const Problem& problem) {
  WARPCALL_DCHECK(site.stream != nullptr && site.device != nullptr, row.name);
  const Tryout tryout = {site.stream->native_handle(), site.operands, site.workspace};
  return row.plan(problem, {.device = site.device,
                            .libraries = site.stream->libraries(),
                            .tryout = &tryout,
                            .stop = site.stop,
                            .plans = site.plans});
}

}  // namespace warpcall
