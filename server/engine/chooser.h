// Chooses what runs a problem. Candidates are the implementations of its kernel on the engine's
// devices; filters (name, policy, health, what was tried, measured and refused) drop those that
// will not do, and the best of the rest comes first.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/registry.h"
#include "server/engine/balancer.h"
#include "server/engine/metrics_sink.h"
#include "server/engine/plan_refusals.h"
#include "server/engine/service_history.h"
#include "server/engine/tuning_table.h"
#include "server/runtime/device.h"

namespace warpcall {

// What choosers look at: one per engine, which outlives them.
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

// What a request names, and what its caller may use. Texts and functions refer to their request.
struct Question {
  const Kernel* kernel;
  absl::string_view implementation;  // empty, "auto", a row or a family
  absl::string_view device;          // empty: any
  // Null: the caller may use all of them.
  std::function<bool(const Implementation&)> may_use = nullptr;
  std::function<bool(absl::string_view device)> may_use_device = nullptr;
};

struct Candidate {
  int device = 0;
  const Row* row = nullptr;
  // By which the row was chosen; null: by the op's order, or by its name.
  std::shared_ptr<const TunedClass> tuned;
  AutoChoice why = AutoChoice::kNone;
  DeviceLoad load;  // for the job: whoever chooses next sees it, submitted or not

  void WriteTo(RequestTrace* trace) const {
    trace->row = row->id;
    trace->device = device;
    trace->auto_choice = why;
  }
};

// Yields one request's candidates, each when the one before has refused. Copies go on by
// themselves. Used by one thread at a time.
class Chooser {
 public:
  Chooser() = default;  // has no candidates
  Chooser(const Choices* choices, Question question)
      : choices_(choices), question_(std::move(question)) {}

  // Finds a row that runs each of `problems`, which differ in size alone, on the first device that
  // has one, or on the one with the least predicted work among those of its kind: see Balancer. The
  // class of the first problem decides. NOT_FOUND lists the devices; UNIMPLEMENTED gives every
  // row's reason; PERMISSION_DENIED when the caller may not use what would run it; UNAVAILABLE when
  // the devices asked for are lost or being started again, or a row that would do was not tried
  // yet. REQUIRES: there is a problem.
  absl::StatusOr<Candidate> Next(absl::Span<const Problem> problems) const;
  // Finds the next one after `row`, which has refused with `refusal`. Returns `refusal` where the
  // request named that row, or where the caller may not use those that would run it.
  absl::StatusOr<Candidate> NextAfter(const Row& row, const absl::Status& refusal,
                                      absl::Span<const Problem> problems);

  // Candidates of other devices are dropped from here on.
  void StayOn(int device) { question_.device = Properties(device).name; }

 private:
  struct Refused {
    const Row* row;
    absl::Status why;
  };

  const DeviceProperties& Properties(int device) const {
    return choices_->places[static_cast<size_t>(device)].device->properties();
  }
  // The best candidate on one device, which works and may be used; without a load.
  absl::StatusOr<Candidate> FindOn(int device, absl::Span<const Problem> problems) const;
  absl::Status CheckDevice(int device) const;
  absl::Status NoSuchDevice() const;

  const Choices* choices_ = nullptr;
  Question question_ = {};
  std::vector<Refused> refused_;
};

}  // namespace warpcall
