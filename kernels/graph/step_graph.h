// Steps that run one after the other on one device as one problem. Each is a problem of an op and
// reads inputs of the graph and results of earlier steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "kernels/registry.h"

namespace warpcall {

inline constexpr int kGraphInputsMax = 64;
inline constexpr int kGraphStepsMax = 256;

// An input of the graph, or the result of one of its steps.
struct GraphValue {
  bool is_input = false;
  int index = 0;

  bool operator==(const GraphValue&) const = default;
};

struct Step {
  const Op* op = nullptr;
  const Row* row = nullptr;  // runs it; null: not chosen yet
  Problem problem;           // with one output
  absl::InlinedVector<GraphValue, 3> inputs;

  bool operator==(const Step&) const = default;
};

// Equal graphs do the same. Immutable for its callers, and thread-safe.
class StepGraph {
 public:
  // REQUIRES: every step and every output refers to what there is, a step to earlier steps alone;
  // no step is an output twice.
  StepGraph(std::vector<Step> steps, std::vector<int> outputs, bool times_steps);

  absl::Span<const Step> steps() const { return steps_; }
  // Steps whose results are the graph's outputs, in their order.
  absl::Span<const int> outputs() const { return outputs_; }
  // The steps are timed one by one.
  bool times_steps() const { return times_steps_; }

  // Position of a step's result among the outputs; -1: it is an intermediate.
  int OutputOf(int step) const { return places_[static_cast<size_t>(step)].output; }
  // Where an intermediate lies in the graph's own memory, of arena_bytes(): no two results that are
  // needed at one time overlap. REQUIRES: OutputOf(step) < 0.
  size_t OffsetOf(int step) const { return places_[static_cast<size_t>(step)].offset; }
  size_t arena_bytes() const { return arena_bytes_; }

  // Returns a graph of the same steps, which `rows` run: the one that it returned last, if these
  // rows ran its steps too.
  std::shared_ptr<const StepGraph> With(absl::Span<const Row* const> rows) const;
  const Work& WorkOf(size_t step) const { return works_[step]; }
  // Sum of the steps' work.
  Work work() const;

  size_t hash() const { return hash_; }
  bool operator==(const StepGraph& other) const {
    return this == &other ||
           (hash_ == other.hash_ && times_steps_ == other.times_steps_ &&
            outputs_ == other.outputs_ && steps_ == other.steps_);
  }

 private:
  struct Place {
    int output = -1;
    size_t offset = 0;
    int last_use = 0;  // the last step that reads it; its own: none does
  };

  void PlaceIntermediates();

  std::vector<Step> steps_;
  std::vector<int> outputs_;
  bool times_steps_;
  std::vector<Place> places_;  // by step
  std::vector<Work> works_;    // by step
  size_t arena_bytes_ = 0;
  size_t hash_ = 0;
  mutable absl::Mutex mutex_;
  mutable std::shared_ptr<const StepGraph> with_rows_ ABSL_GUARDED_BY(mutex_);
};

// The problem of a graph whose inputs are `inputs`.
Problem MakeGraphProblem(std::shared_ptr<const StepGraph> graph,
                         absl::Span<const TensorSpec> inputs);

// Adds the kernel "graph", whose problems are graphs and which no request names, with a row for
// each of `kinds`.
void AddGraphKernel(absl::Span<const DeviceKind> kinds, Registry* registry);
// That kernel. REQUIRES: it was added.
const Kernel& GraphKernel(const Registry& registry);

}  // namespace warpcall
