#include "kernels/graph/step_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

size_t AlignedBytes(const Step& step) {
  return CeilDivide(step.problem.outputs[0].bytes(), kOperandAlignmentBytes) *
         kOperandAlignmentBytes;
}

size_t HashOf(absl::Span<const Step> steps, absl::Span<const int> outputs, bool times_steps) {
  size_t hash = absl::HashOf(outputs, times_steps, steps.size());
  for (const Step& step : steps) {
    hash = absl::HashOf(hash, step.row == nullptr ? -1 : step.row->id, step.problem);
    for (const GraphValue& value : step.inputs)
      hash = absl::HashOf(hash, value.is_input, value.index);
  }
  return hash;
}

}  // namespace

StepGraph::StepGraph(std::vector<Step> steps, std::vector<int> outputs, bool times_steps)
    : steps_(std::move(steps)),
      outputs_(std::move(outputs)),
      times_steps_(times_steps),
      places_(steps_.size()),
      hash_(HashOf(steps_, outputs_, times_steps_)) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    places_[i].last_use = static_cast<int>(i);
    WARPCALL_CHECK(step.op != nullptr && step.problem.outputs.size() == 1, i);
    WARPCALL_CHECK(step.inputs.size() == step.problem.inputs.size(), i, step.inputs.size());
    for (const GraphValue& value : step.inputs) {
      WARPCALL_CHECK(value.index >= 0 && (value.is_input || static_cast<size_t>(value.index) < i),
                     i, value.index);
      if (!value.is_input) places_[static_cast<size_t>(value.index)].last_use = static_cast<int>(i);
    }
    works_.push_back(step.op->work(step.problem));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    WARPCALL_CHECK(outputs_[i] >= 0 && static_cast<size_t>(outputs_[i]) < steps_.size(), i);
    int& output = places_[static_cast<size_t>(outputs_[i])].output;
    WARPCALL_CHECK(output < 0, i, outputs_[i]);
    output = static_cast<int>(i);
  }
  PlaceIntermediates();
}

// Largest first, each at the lowest place that nothing else has while it lives.
void StepGraph::PlaceIntermediates() {
  std::vector<int> order;
  for (size_t i = 0; i < steps_.size(); ++i)
    if (places_[i].output < 0) order.push_back(static_cast<int>(i));
  const auto bytes = [this](int step) { return AlignedBytes(steps_[static_cast<size_t>(step)]); };
  absl::c_stable_sort(order, [&](int a, int b) { return bytes(a) > bytes(b); });
  std::vector<int> placed;  // by offset
  for (const int step : order) {
    Place& place = places_[static_cast<size_t>(step)];
    for (const int other : placed) {
      const Place& theirs = places_[static_cast<size_t>(other)];
      // A step's result lives from its own step to the last that reads it, both included.
      const bool meet = other <= place.last_use && step <= theirs.last_use;
      if (!meet || theirs.offset + bytes(other) <= place.offset) continue;
      if (theirs.offset >= place.offset + bytes(step)) continue;
      place.offset = theirs.offset + bytes(other);
    }
    arena_bytes_ = std::max(arena_bytes_, place.offset + bytes(step));
    placed.insert(absl::c_upper_bound(placed, step,
                                      [this](int a, int b) {
                                        return places_[static_cast<size_t>(a)].offset <
                                               places_[static_cast<size_t>(b)].offset;
                                      }),
                  step);
  }
}

std::shared_ptr<const StepGraph> StepGraph::With(absl::Span<const Row* const> rows) const {
  WARPCALL_CHECK(rows.size() == steps_.size(), rows.size(), steps_.size());
  const absl::MutexLock lock(&mutex_);
  const auto runs = [](const Step& step, const Row* row) { return step.row == row; };
  if (with_rows_ != nullptr && absl::c_equal(with_rows_->steps_, rows, runs)) return with_rows_;
  std::vector<Step> steps = steps_;
  for (size_t i = 0; i < steps.size(); ++i) steps[i].row = rows[i];
  with_rows_ = std::make_shared<const StepGraph>(std::move(steps), outputs_, times_steps_);
  return with_rows_;
}

Work StepGraph::work() const {
  Work sum;
  for (const Work& work : works_) {
    sum.bytes = SaturatingAdd(sum.bytes, work.bytes);
    sum.flops = SaturatingAdd(sum.flops, work.flops);
  }
  return sum;
}

size_t HashOf(const StepGraph& graph) { return graph.hash(); }

bool AreEqual(const StepGraph& a, const StepGraph& b) { return a == b; }

Problem MakeGraphProblem(std::shared_ptr<const StepGraph> graph,
                         absl::Span<const TensorSpec> inputs) {
  Problem problem;
  problem.inputs.assign(inputs.begin(), inputs.end());
  for (const int step : graph->outputs())
    problem.outputs.push_back(graph->steps()[static_cast<size_t>(step)].problem.outputs[0]);
  problem.graph = std::move(graph);
  return problem;
}

}  // namespace warpcall
