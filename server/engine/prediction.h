// How long a job is expected to hold its lane. A graph's time is the sum of its steps'.
#pragma once

#include "absl/functional/function_ref.h"
#include "kernels/graph/step_graph.h"
#include "server/engine/job.h"
#include "server/engine/service_history.h"

namespace warpcall {

ServiceHistory::Prediction Predict(const ServiceHistory& history, const Job& job);
// After the job has run.
void RecordRun(const Job& job, ServiceHistory* history);
// After a prediction has kept the job out: see ServiceHistory::LowerPrediction.
void LowerPrediction(const Job& job, ServiceHistory* history);

// For a graph of which no operand stays on the device. REQUIRES: each step has its row.
ServiceHistory::Prediction Predict(const ServiceHistory& history, const StepGraph& graph);

}  // namespace warpcall
