// What the judge has seen, as the caller is told it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "server/judge/time_trial.h"
#include "server/judge/trial.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::judge {

// A compile error's message is the log.
v1::PushEvent ToEvent(const absl::StatusOr<compiled::CudaCode>& code, DataType type,
                      const std::string& target);
void SetShape(const LaunchShape& shape, v1::PushCompiled* compiled);
v1::PushEvent ToEvent(const Problem& problem, const Op& op, const TrialResult& result);
v1::PushEvent ToEvent(const Problem& problem, const Op& op, const TimeResult& result);

}  // namespace warpcall::judge
