// Runs a benchmark on a device whose launches take as long as the test says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "server/inspect/benchmark.h"
#include "tests/server/inspect/timed_device.h"
#include "tests/server/nanoseconds.h"

namespace warpcall::inspect {

using testing::kMicrosecond;
using testing::kMillisecond;
using testing::kSecond;

// Nanoseconds of a launch on so many bytes at a time of the device's clock.
using Cost = std::function<int64_t(int64_t bytes, int64_t now_ns)>;

inline Cost Always(int64_t ns) {
  return [ns](int64_t, int64_t) { return ns; };
}

struct MadeUp {
  const char* name;
  Cost cost;
  Family family = Family::kManual;  // which copies for the ceiling are not
};

// The machine as the test has it: busy while `busy` says so, at the end of a sample.
class MadeUpSurroundings final : public Surroundings {
 public:
  explicit MadeUpSurroundings(
      std::function<bool()> busy, std::function<void()> begin = [] {})
      : busy_(std::move(busy)), begin_(std::move(begin)) {}
  bool AwaitQuiet() override {
    ++waits_;
    return true;
  }
  void Begin() override { begin_(); }
  bool Disturbed(int64_t) override { return busy_(); }
  bool ServerAtWork() const override { return server_at_work_; }
  void SetServerAtWork() { server_at_work_ = true; }
  int waits() const { return waits_; }

 private:
  const std::function<bool()> busy_;
  const std::function<void()> begin_;
  int waits_ = 0;
  bool server_at_work_ = false;
};

class RoundsTest : public ::testing::Test {
 protected:
  explicit RoundsTest(DeviceKind kind = DeviceKind::kCpu) : device_(kind) {}

  // Returns the results in the rows' order, and keeps every report in told_.
  v1::BenchmarkResponse Run(const std::vector<MadeUp>& rows) {
    std::vector<Implementation> implementations;
    for (const MadeUp& row : rows) implementations.push_back(ToImplementation(row));
    registry_.Add(IdentityOp(), implementations);
    plan_.kernel = *registry_.Find("identity");
    for (const int id : plan_.kernel->rows) {
      const Row& row = registry_.rows()[static_cast<size_t>(id)];
      if (row.implementation.family == Family::kManual) plan_.rows.push_back(&row);
    }
    plan_.problem = *MakeProblem(IdentityOp(), {{DataType::kFloat32, {elements_}}}, {});
    BenchmarkSite site{&registry_, &device_, surroundings_, conditions_};
    site.witness = witness_;
    site.clock = [this] { return device_.now_ns(); };
    site.sleep = [this](int64_t ns) {
      rested_ns_ += ns;
      device_.Pass(ns);
    };
    site.tell = [this](const v1::BenchmarkResponse& news) {
      told_.emplace_back();
      for (const v1::BenchmarkResult& result : news.results()) {
        told_.back().push_back(result.launch().variant());
        EXPECT_EQ(result.verdict(), "") << "before all results are known";
      }
    };
    absl::StatusOr<v1::BenchmarkResponse> report = RunBenchmark(site, plan_, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : v1::BenchmarkResponse();
  }

  Implementation ToImplementation(const MadeUp& row) {
    return {.name = row.name,
            .family = row.family,
            .device_kind = device_.properties().kind,
            .summary = "made up",
            .data_types = {DataType::kFloat32},
            .supports = SupportsAll,
            .plan = [this, row](const Problem& problem, const PlanContext&) {
              const auto bytes = static_cast<int64_t>(problem.inputs[0].bytes());
              return absl::StatusOr<PlanPtr>(
                  NewPlan({}, [this, row, bytes](const Operands&, const LaunchContext& context) {
                    launches_.push_back(row.name);
                    auto* const device = static_cast<testing::TimedDevice*>(context.stream);
                    const int64_t end_ns = device->now_ns() + row.cost(bytes, device->now_ns());
                    while (device->now_ns() < end_ns && !IsSet(context.stop))
                      device->Pass(std::min(end_ns - device->now_ns(), 10 * kMillisecond));
                    return absl::OkStatus();
                  }));
            }};
  }

  const std::vector<std::string>& Launches() const { return launches_; }
  std::vector<std::string> Launches(const std::string& name) const {
    std::vector<std::string> of_name;
    for (const std::string& launch : launches_)
      if (launch == name) of_name.push_back(launch);
    return of_name;
  }

  testing::TimedDevice device_;
  int64_t rested_ns_ = 0;
  Registry registry_;
  int64_t elements_ = 1000;
  BenchmarkPlan plan_;
  Surroundings* surroundings_ = nullptr;
  ConditionReader* conditions_ = nullptr;
  SampleWitness* witness_ = nullptr;
  std::vector<std::string> launches_;
  std::vector<std::vector<std::string>> told_;
};

}  // namespace warpcall::inspect
