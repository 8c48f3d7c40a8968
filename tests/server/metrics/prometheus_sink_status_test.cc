// What the sink tells the operators' page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/metrics/sink_fixture.h"

namespace warpcall::testing {
namespace {

class PrometheusSinkStatusTest : public ::testing::Test {
 protected:
  PrometheusSinkStatusTest() : sink_(MadeUpRegistry(), Options()) {}

  PrometheusSink::Options Options() {
    DeviceSnapshot snapshot;
    snapshot.queue_depth = 4;
    PrometheusSink::Options options = SinkOptions({snapshot});
    options.devices_left_out = {"cuda:1"};
    options.clock = [this] { return now_ns_; };
    return options;
  }

  ServerStatus Status() const {
    ServerStatus status;
    sink_.Describe(&status);
    return status;
  }

  KernelStatus KernelOf(const std::string& name) const {
    for (const KernelStatus& kernel : Status().kernels)
      if (kernel.name == name) return kernel;
    ADD_FAILURE() << "no kernel " << name;
    return {};
  }

  int64_t now_ns_ = 0;
  PrometheusSink sink_;
};

TEST_F(PrometheusSinkStatusTest, CountsARequestOnceForItsKernel) {
  RequestTrace trace = RunTrace(kAlpha, kAlphaTiled, kCudaDevice);
  trace.total_ns = 3000;
  trace.queue_ns = 900;
  for (int i = 0; i < 3; ++i) sink_.Record(trace);
  trace.row = kAlphaPlain;
  trace.device = kCpuDevice;
  sink_.Record(trace);
  RequestTrace refused;  // no row was chosen
  refused.kernel = kAlpha;
  refused.code = absl::StatusCode::kInvalidArgument;
  refused.total_ns = 5000;
  sink_.Record(refused);
  now_ns_ = 2'000'000'000;
  EXPECT_EQ(Status().window_seconds, 2);
  const KernelStatus alpha = KernelOf("alpha");
  EXPECT_EQ(alpha.requests, 5u);
  EXPECT_EQ(alpha.last_minute.answered[static_cast<size_t>(BucketOf(3000))], 4u);
  EXPECT_EQ(alpha.last_minute.answered[static_cast<size_t>(BucketOf(5000))], 1u);
  EXPECT_EQ(alpha.last_minute.waited[0], 4u);
  EXPECT_EQ(CountOf(alpha.last_minute.waited), 4u);
  EXPECT_EQ(alpha.last_minute.failed, 1u);
  EXPECT_EQ(KernelOf("beta").requests, 0u);
}

TEST_F(PrometheusSinkStatusTest, WhatWasCountedBeforeTheWindowIsNoRecentRequest) {
  sink_.Record(RunTrace(kBeta, kBetaPlain, kCpuDevice));
  for (int i = 0; i < 20; ++i) {
    now_ns_ += 5'000'000'000;
    sink_.SampleTraffic();
  }
  sink_.Record(RunTrace(kBeta, kBetaPlain, kCpuDevice));
  const KernelStatus beta = KernelOf("beta");
  EXPECT_EQ(beta.requests, 2u);
  EXPECT_EQ(CountOf(beta.last_minute.answered), 1u);
  EXPECT_EQ(Status().kernels[0].name, "beta");  // the busiest comes first
}

TEST_F(PrometheusSinkStatusTest, RequestsOfNoKernelHaveALineOnceThereAreAny) {
  EXPECT_EQ(Status().kernels.size(), 2u);
  RequestTrace trace;
  trace.code = absl::StatusCode::kNotFound;
  sink_.Record(trace);
  EXPECT_EQ(Status().kernels.size(), 3u);
  EXPECT_EQ(KernelOf("").requests, 1u);
  EXPECT_EQ(KernelOf("").last_minute.failed, 1u);
}

TEST_F(PrometheusSinkStatusTest, AutosImplementationIsTheOneThatItRanMostElseTheFirst) {
  EXPECT_EQ(KernelOf("beta").auto_choice.implementation, "cpu");
  // The first device comes before the first implementation, which is the other device's.
  EXPECT_EQ(KernelOf("alpha").auto_choice.implementation, "cpu");
  EXPECT_EQ(KernelOf("beta").auto_choice.of, 0u);
  RequestTrace tiled = RunTrace(kAlpha, kAlphaTiled, kCudaDevice);
  RequestTrace plain = RunTrace(kAlpha, kAlphaPlain, kCpuDevice);
  tiled.auto_choice = AutoChoice::kOrder;
  sink_.Record(tiled);
  for (const AutoChoice why : {AutoChoice::kTuned, AutoChoice::kOrder, AutoChoice::kNone}) {
    plain.auto_choice = why;
    sink_.Record(plain);
  }
  const AutoStatus alpha = KernelOf("alpha").auto_choice;
  EXPECT_EQ(alpha.implementation, "cpu");
  EXPECT_EQ(alpha.requests, 2u);
  EXPECT_EQ(alpha.of, 3u);
}

// They share their series.
TEST_F(PrometheusSinkStatusTest, VariantsOfAFamilyCountTogetherAndOnce) {
  static const Op gamma = {"gamma", "", {"x"}, {}, nullptr, nullptr};
  Implementation first = MadeUpRegistry().rows()[kBetaPlain].implementation;
  Implementation second = first;
  first.name = "first";
  second.name = "second";
  Registry registry;
  registry.Add(gamma, {first, second});
  PrometheusSink sink(registry, Options());
  for (const int row : {0, 1, 1}) {
    RequestTrace trace = RunTrace(0, row, kCpuDevice);
    trace.auto_choice = AutoChoice::kOrder;
    sink.Record(trace);
  }
  ServerStatus status;
  sink.Describe(&status);
  EXPECT_EQ(status.kernels[0].requests, 3u);
  EXPECT_EQ(status.kernels[0].auto_choice.requests, 3u);
  EXPECT_EQ(status.kernels[0].auto_choice.of, 3u);
}

TEST_F(PrometheusSinkStatusTest, DevicesThatCouldNotBeOpenedAreShown) {
  const std::vector<DeviceStatus> devices = Status().devices;
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].name, "cpu");
  EXPECT_EQ(devices[0].snapshot.queue_depth, 4);
  EXPECT_EQ(devices[2].name, "cuda:1");
  EXPECT_FALSE(devices[2].is_open);
}

TEST_F(PrometheusSinkStatusTest, KeepsTheLastTenInspectionsNewestFirst) {
  for (int i = 0; i < 12; ++i)
    sink_.RecordInspection({.kind = Inspection::kProfile,
                            .code = absl::StatusCode::kNotFound,
                            .kernel = kBeta,
                            .device = kCudaDevice,
                            .total_ns = i * int64_t{1'000'000'000}});
  sink_.RecordInspection({.kind = Inspection::kPush,
                          .principal = "alice",
                          .push = std::string(1000, 'x'),
                          .verdict = "INCORRECT"});
  const std::vector<RecentInspection> inspections = Status().inspections;
  ASSERT_EQ(inspections.size(), 10u);
  EXPECT_EQ(inspections[0].method, "push");
  EXPECT_EQ(inspections[0].outcome, "INCORRECT");
  EXPECT_EQ(inspections[0].principal, "alice");
  EXPECT_EQ(inspections[0].push.size(), kStatusNameBytesMax);
  EXPECT_EQ(inspections[0].kernel, "");
  EXPECT_GT(inspections[0].unix_ns, 0);
  EXPECT_EQ(inspections[1].method, "profile");
  EXPECT_EQ(inspections[1].outcome, "NOT_FOUND");
  EXPECT_EQ(inspections[1].kernel, "beta");
  EXPECT_EQ(inspections[1].device, "cuda:0");
  EXPECT_EQ(inspections[1].seconds, 11);
  EXPECT_EQ(inspections[9].seconds, 3);
}

}  // namespace
}  // namespace warpcall::testing
