#include "server/transport/inquiry.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

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

}  // namespace
}  // namespace warpcall
