#include "server/transport/inquiry.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

TEST(CheckInspectAccess, LocalTakesLoopbackAddressesAndUnixSockets) {
  for (const char* const peer : {"unix:", "unix:/run/w.sock", "ipv4:127.0.0.1:40000",
                                 "ipv4:127.9.8.7:1", "ipv6:[::1]:40000", "ipv6:%5B::1%5D:40000"})
    EXPECT_TRUE(CheckInspectAccess(InspectAccess::kLocal, peer).ok()) << peer;
  for (const char* const peer : {"ipv4:10.0.0.1:40000", "ipv4:192.168.127.1:127", "ipv4:12.7.0.1:1",
                                 "ipv6:[2001:db8::1]:1", "ipv6:%5B::1:2%5D:1", "", "unknown"}) {
    const absl::Status status = CheckInspectAccess(InspectAccess::kLocal, peer);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << peer;
    EXPECT_TRUE(absl::StrContains(status.message(), peer)) << status;
  }
}

TEST(CheckInspectAccess, OnTakesEverybodyAndOffNobody) {
  for (const char* const peer : {"unix:", "ipv4:10.0.0.1:40000"}) {
    EXPECT_TRUE(CheckInspectAccess(InspectAccess::kOn, peer).ok());
    EXPECT_TRUE(absl::IsPermissionDenied(CheckInspectAccess(InspectAccess::kOff, peer)));
  }
}

TEST(DeviceNsOf, CountsWhatWasTimed) {
  v1::BenchmarkResponse benchmark;
  for (const double mean_ns : {1000.0, 3.5}) {
    v1::BenchmarkResult* const result = benchmark.add_results();
    result->set_mean_ns(mean_ns);
    result->set_iterations(10);
    result->set_launches_per_iteration(4);
  }
  EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, benchmark.SerializeAsString()), 40'140);
  EXPECT_EQ(DeviceNsOf(Inspection::kTune, benchmark.SerializeAsString()), 40'140);
  v1::ProfileResponse profile;
  for (const char* const kind : {"kernel", "copy", "set", "gap", "host"}) {
    v1::ProfileRow* const row = profile.add_rows();
    row->set_kind(kind);
    row->set_total_ns(100);
  }
  EXPECT_EQ(DeviceNsOf(Inspection::kProfile, profile.SerializeAsString()), 300);
  EXPECT_EQ(DeviceNsOf(Inspection::kDescribe, profile.SerializeAsString()), 0);
}

// The process that answers may have been written over by what it profiles.
TEST(DeviceNsOf, TakesNoNonsense) {
  EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, "\xff\xff"), 0);
  v1::BenchmarkResponse response;
  v1::BenchmarkResult* const result = response.add_results();
  result->set_iterations(1);
  result->set_launches_per_iteration(1);
  for (const double mean_ns : {-5.0, std::numeric_limits<double>::quiet_NaN()}) {
    result->set_mean_ns(mean_ns);
    EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, response.SerializeAsString()), 0);
  }
  result->set_mean_ns(std::numeric_limits<double>::infinity());
  EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, response.SerializeAsString()),
            1'000'000'000'000'000);
}

// What a Tune of gelu answers, row by row.
class LearnFromTest : public ::testing::Test {
 protected:
  LearnFromTest() { table_.AddDevice(device_); }

  static Registry CpuRegistry() {
    Registry registry;
    AddCpuKernels(&registry);
    return registry;
  }

  v1::BenchmarkResult* Add(const std::string& row, double median_ns) {
    v1::BenchmarkResult* const result = response_.add_results();
    result->set_implementation(row);
    result->set_median_ns(median_ns);
    result->set_median_low_ns(median_ns);
    result->set_median_high_ns(median_ns);
    result->set_checked_elements(10);
    result->set_max_error(0.5);
    return result;
  }
  // By the names of rows: those that are right, "!", and those that are wrong.
  std::string Learned() {
    auto cache = TuningCache::Open(registry_, &table_, folder_.Path("tuning"));
    EXPECT_TRUE(cache.ok()) << cache.status();
    ExecuteDeps deps{&registry_, nullptr, nullptr, nullptr, 0};
    deps.tuning = cache->get();
    const Kernel& kernel = **registry_.Find("gelu");
    const Problem problem = *MakeProblem(*kernel.op, {{DataType::kFloat32, {64}}}, {});
    LearnFrom(deps, {kernel.id, problem, device_}, response_.SerializeAsString());
    // What is written must be read again.
    TuningTable again(registry_);
    again.AddDevice(device_);
    EXPECT_EQ((*TuningCache::Open(registry_, &again, folder_.Path("tuning")))->errors().read, 0);
    const auto tuned = again.Find(kernel, problem, 0);
    if (tuned == nullptr) return "nothing";
    const auto name = [&](int row) {
      return std::string(registry_.rows()[static_cast<size_t>(row)].implementation.name);
    };
    std::string names;
    for (const RightRow& right : tuned->right) names += name(right.row) + " ";
    names += "!";
    for (const WrongRow& wrong : tuned->wrong) names += " " + name(wrong.row);
    return names;
  }

  testing::TempFolder folder_;
  const Registry registry_ = CpuRegistry();
  TuningTable table_{registry_};
  DeviceProperties device_;
  v1::BenchmarkResponse response_;
};

TEST_F(LearnFromTest, RowsThatWereCheckedAreRightOrWrong) {
  Add("float64", 30);
  Add("chain_of_loops", 20)->set_unstable(true);
  Add("simd_fused", 10)->set_max_error(1.01);
  EXPECT_EQ(Learned(), "chain_of_loops float64 ! simd_fused");
}

TEST_F(LearnFromTest, WhatWasNotCheckedOrIsNoTimeIsNeither) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Add("simd_fused", 10)->set_checked_elements(0);
  EXPECT_EQ(Learned(), "nothing");
  Add("float64", 10)->set_error("not reached before the call's deadline");
  Add("chain_of_loops", 10)->set_relative_error(kNan);
  Add("chain_of_loops", 10)->set_relative_error(0.9);
  Add("no_such_row", 10);
  for (const double ns : {kNan, kInfinity, -1.0, 0.0}) Add("chain_of_loops", ns);
  EXPECT_EQ(Learned(), "nothing");
  Add("chain_of_loops", 10)->set_max_error(kNan);
  EXPECT_EQ(Learned(), "! chain_of_loops");
}

TEST_F(LearnFromTest, WhatIsNoResponseTeachesNothing) {
  LearnFrom({&registry_, nullptr, nullptr, nullptr, 0}, {0, Problem(), device_}, "\xff\xff");
  EXPECT_EQ(Learned(), "nothing");
}

}  // namespace
}  // namespace warpcall
