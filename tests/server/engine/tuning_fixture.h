// A kernel with rows to choose among, on a device that never runs them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/plan.h"
#include "kernels/registry.h"
#include "server/engine/chooser.h"
#include "server/engine/tuning_table.h"
#include "tests/server/fake_device.h"
#include "tests/server/small_op.h"

namespace warpcall::testing {

inline absl::Status TakeEven(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() % 2 == 0) return absl::OkStatus();
  return absl::UnimplementedError("takes even numbers of elements");
}

class TuningTest : public ::testing::Test {
 protected:
  // Row::ids: the order of preference.
  enum Id { kFirst, kEven, kLast, kTruth };

  TuningTest() {
    table_.AddDevice(device_);
    balancer_.AddDevice(1);
  }

  static Registry MakeTunedRegistry() {
    Implementation first = {"first", Family::kCpu,         DeviceKind::kCpu,
                            "",      {DataType::kFloat32}, SupportsAll};
    first.plan = [](const Problem&, const PlanContext&) -> absl::StatusOr<PlanPtr> {
      return PlanNothing();
    };
    Implementation even = first;
    even.name = "even";
    even.supports = TakeEven;
    Implementation last = first;
    last.name = "last";
    last.family = Family::kManual;
    Implementation truth = first;
    truth.name = "truth";
    truth.family = Family::kReference;
    Registry registry;
    static const Op& op = NewSmallOp("double", "y = 2 x");
    registry.Add(op, {first, even, last, truth});
    return registry;
  }

  static Problem ProblemOf(int64_t elements) {
    TensorSpec spec;
    spec.dims = {elements};
    Problem problem;
    problem.inputs = {spec};
    problem.outputs = {spec};
    return problem;
  }

  // A class measured at `elements`: its rows and their times.
  TunedClass Measured(int64_t elements, const std::vector<std::pair<int, double>>& right,
                      const std::vector<int>& wrong = {}) const {
    TunedClass measured;
    measured.kernel = 0;
    measured.device_model = DeviceModelOf(device_);
    measured.problem = ProblemOf(elements);
    measured.stamp = {.started_unix_ns = 1000, .server_version = "1.0"};
    for (const auto& [row, ns] : right)
      measured.right.push_back({row, ns, 0.99 * ns, 1.01 * ns, false});
    for (const int row : wrong) measured.wrong.push_back({row, 3.5, "1.0"});
    return measured;
  }

  absl::StatusOr<Candidate> Choose(absl::string_view implementation,
                                   const std::vector<Problem>& problems) const {
    return Chooser(&choices_, {&registry_.kernels()[0], implementation, ""}).Next(problems);
  }
  // Returns "first", or "first, tuned", or the error.
  std::string Chosen(absl::string_view implementation, int64_t elements) const {
    const auto choice = Choose(implementation, {ProblemOf(elements)});
    if (!choice.ok()) return std::string(choice.status().message());
    return std::string(choice->row->implementation.name) +
           (choice->tuned == nullptr ? "" : ", tuned");
  }

  Registry registry_ = MakeTunedRegistry();
  TuningTable table_{registry_};
  PlanRefusals refusals_;
  ServiceHistory history_{static_cast<int>(registry_.rows().size())};
  Balancer balancer_;
  FakeDevice::Control control_;
  FakeDevice fake_{&control_, "fake"};
  const DeviceProperties& device_ = fake_.properties();
  const Choices choices_ = {&registry_, &table_, &history_, &balancer_, {{&fake_, &refusals_}}};
};

}  // namespace warpcall::testing
