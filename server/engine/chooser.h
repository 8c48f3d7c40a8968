// Chooses the implementation and device for a problem. Candidates are the implementations of its
// kernel on the engine's devices. Filters (name, policy, health, trials, measurements, refusals)
// drop the unsuitable ones, and the best of the rest comes first.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/graph/step_graph.h"
#include "kernels/registry.h"
#include "server/engine/balancer.h"
#include "server/engine/metrics_sink.h"
#include "server/engine/plan_refusals.h"
#include "server/engine/service_history.h"
#include "server/engine/tuning_table.h"
#include "server/runtime/device.h"

namespace warpcall {

// Data that choosers read: one per engine, which outlives them.
struct Choices {
  struct Place {
    const Device* device;
    const PlanRefusals* refusals;
  };

  const Registry* registry;
  const TuningTable* tuning;
  const ServiceHistory* history;
  Balancer* balancer;
  std::vector<Place> places;  // numbered as in TuningTable and Balancer, in order of preference
};

// A step of a graph whose row is asked for.
struct StepQuestion {
  const Kernel* kernel;
  std::string name;            // of the step, for messages
  std::string implementation;  // as Question's
};

// A request's implementation, device and policy. Views and functions refer to the request.
struct Question {
  const Kernel* kernel;
  absl::string_view implementation;  // empty, "auto", a row or a family
  absl::string_view device;          // empty: any
  // Null: the caller may use all of them.
  std::function<bool(const Implementation&)> may_use = nullptr;
  std::function<bool(absl::string_view device)> may_use_device = nullptr;
  // Of a graph, whose kernel is GraphKernel.
  absl::Span<const StepQuestion> steps = {};
};

struct Candidate {
  int device = 0;
  const Row* row = nullptr;
  // The measurement that decided; null: the op's order, or the implementation's name, did.
  std::shared_ptr<const TunedClass> tuned;
  AutoChoice why = AutoChoice::kNone;
  std::shared_ptr<const StepGraph> graph;  // with the steps' rows; null: the request is no graph
  // The job's, if devices were compared: already on the books, whether or not the job is submitted.
  DeviceLoad load;

  void WriteTo(RequestTrace* trace) const {
    trace->row = row->id;
    trace->device = device;
    trace->auto_choice = why;
    if (graph != nullptr) trace->graph = std::make_shared<GraphRun>(GraphRun{graph});
  }
};

// Yields one request's candidates, each when the one before has refused. A copy continues
// independently. Used by one thread at a time.
class Chooser {
 public:
  Chooser() = default;  // has no candidates
  Chooser(const Choices* choices, Question question)
      : choices_(choices), question_(std::move(question)) {}

  // Finds an implementation that runs each of `problems`, which differ in size alone, on the first
  // device that has one, or on the one with the least predicted work of its kind (Balancer). The
  // class of the first problem decides. NOT_FOUND lists the devices. UNIMPLEMENTED gives every
  // implementation's reason. PERMISSION_DENIED: the policy excludes those that would run it.
  // UNAVAILABLE: the named devices are lost or restarting, or a usable implementation is still on
  // trial. REQUIRES: there is a problem, and the implementation's name is known.
  absl::StatusOr<Candidate> Next(absl::Span<const Problem> problems) const;
  // Finds the next candidate after `row`, which has refused with `refusal`. Returns `refusal` if
  // the request named that row, or if the policy excludes those that would run it.
  absl::StatusOr<Candidate> NextAfter(const Row& row, const absl::Status& refusal,
                                      absl::Span<const Problem> problems);

  // From now on considers candidates of `device` only.
  void StayOn(int device) { question_.device = Properties(device).name; }

 private:
  struct Refused {
    const Row* row;
    absl::Status why;
  };

  const DeviceProperties& Properties(int device) const {
    return choices_->places[static_cast<size_t>(device)].device->properties();
  }
  // Returns the best candidate on one healthy and allowed device; without a load.
  absl::StatusOr<Candidate> FindOn(int device, absl::Span<const Problem> problems) const;
  // NextAfter of a graph: its device knows by now which step's row refused what.
  absl::StatusOr<Candidate> StepsAfter(const absl::Status& refusal, const Problem& problem) const;
  // As FindOn, for a graph: finds a row for each step.
  absl::StatusOr<Candidate> FindStepsOn(int device, const Problem& problem) const;
  absl::Status CheckDevice(int device) const;
  absl::Status NoSuchDevice() const;

  const Choices* choices_ = nullptr;
  Question question_ = {};
  std::vector<Refused> refused_;
};

}  // namespace warpcall
