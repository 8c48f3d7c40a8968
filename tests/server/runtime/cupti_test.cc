// CUPTI without a GPU: loading it, and conversion of its records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/runtime/cuda/cupti_api.h"
#include "server/runtime/cuda/cupti_records.h"
#include "server/runtime/cuda/cupti_trace.h"

namespace warpcall::cupti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CuptiApiTest, MissingLibraryIsNamedWithItsReason) {
  const absl::Status status = Open("libwarpcall_no_such_library.so.1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("could not load libwarpcall_no_such_library.so.1: "),
                    HasSubstr("cannot open shared object file"), HasSubstr("profiling needs it")));
}

TEST(CuptiApiTest, LibraryWithoutTheFunctionsIsRefused) {
  EXPECT_THAT(std::string(Open("libm.so.6").status().message()),
              StartsWith("libm.so.6 has no function cuptiGetResultString: "));
}

TEST(CuptiApiTest, TheLoadersOwnFoldersComeFirst) {
  EXPECT_EQ(Candidates().front(), "libcupti.so.13");
}

TEST(CuptiApiTest, LoadingGivesTheSameEveryTimeAndSaysWhereItLooked) {
  EXPECT_EQ(Load().status(), Load().status());
  if (Load().ok()) {
    EXPECT_EQ(*Load(), *Load());
    return;
  }
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kUnavailable);
  for (const std::string& file : Candidates())
    EXPECT_THAT(std::string(Load().status().message()), HasSubstr(file));
}

Api WithErrorTexts() {
  Api api = {};
  api.GetResultString = [](CUptiResult, const char** text) {
    *text = "CUPTI_ERROR_MADE_UP";
    return CUPTI_SUCCESS;
  };
  api.GetErrorMessage = [](CUptiResult, const char** text) {
    *text = "what it means";
    return CUPTI_SUCCESS;
  };
  return api;
}

TEST(CuptiStatusTest, LackOfPermissionSaysWhatGivesIt) {
  const Api api = WithErrorTexts();
  for (const CUptiResult result : {CUPTI_ERROR_INSUFFICIENT_PRIVILEGES,
                                   CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES}) {
    const absl::Status status = api.ToStatus(result, "counting");
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(StartsWith("counting: CUPTI_ERROR_MADE_UP ("), HasSubstr("what it means"),
              HasSubstr("CAP_SYS_ADMIN"), HasSubstr("NVreg_RestrictProfilingToAdminUsers=0")));
  }
}

TEST(CuptiStatusTest, WhatLiesOutsideTheProcessIsUnavailableAndOurDefectsAreInternal) {
  const Api api = WithErrorTexts();
  EXPECT_TRUE(api.ToStatus(CUPTI_SUCCESS, "counting").ok());
  const absl::Status other =
      api.ToStatus(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "subscribing");
  EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(other.message(), "subscribing: CUPTI_ERROR_MADE_UP (39): what it means");
  EXPECT_EQ(api.ToStatus(CUPTI_ERROR_HARDWARE_BUSY, "").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(api.ToStatus(CUPTI_ERROR_UNKNOWN, "").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(api.ToStatus(CUPTI_ERROR_OUT_OF_MEMORY, "").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(api.ToStatus(CUPTI_ERROR_INVALID_PARAMETER, "").code(), absl::StatusCode::kInternal);
}

TEST(CuptiRecordsTest, NamesAreDemangledWhereTheyAreMangled) {
  EXPECT_EQ(Demangle("_ZN8warpcall4gelu6KernelIfEEvPKT_PS2_l"),
            "void warpcall::gelu::Kernel<float>(float const*, float*, long)");
  EXPECT_EQ(Demangle("sm90_xmma_gemm"), "sm90_xmma_gemm");
  EXPECT_EQ(Demangle("main"), "main");
  EXPECT_EQ(Demangle(""), "unnamed");
  EXPECT_EQ(Demangle(nullptr), "unnamed");
}

template <typename CuptiRecord>
std::optional<Record> Convert(const CuptiRecord& record) {
  return FromCupti(reinterpret_cast<const CUpti_Activity&>(record));
}

TEST(CuptiRecordsTest, KernelsKeepTheirShape) {
  CUpti_ActivityKernel10 kernel = {};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.name = "_Z1fv";
  kernel.start = 1000;
  kernel.end = 3000;
  kernel.deviceId = 2;
  kernel.streamId = 17;
  kernel.registersPerThread = 40;
  kernel.staticSharedMemory = 100;
  kernel.dynamicSharedMemory = 200000;
  kernel.gridX = 5;
  kernel.gridY = 6;
  kernel.gridZ = 7;
  kernel.blockX = 128;
  kernel.blockY = 2;
  kernel.blockZ = 1;
  const std::optional<Record> record = Convert(kernel);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->device, 2u);
  const DeviceActivity& activity = record->activity;
  EXPECT_EQ(activity.kind, DeviceActivity::Kind::kKernel);
  EXPECT_EQ(activity.name, "f()");
  EXPECT_EQ(activity.start_ns, 1000);
  EXPECT_EQ(activity.end_ns, 3000);
  EXPECT_EQ(activity.stream, 17);
  EXPECT_EQ(activity.registers_per_thread, 40);
  EXPECT_EQ(activity.shared_memory_bytes, 200100);
  EXPECT_THAT(activity.grid, ElementsAre(5, 6, 7));
  EXPECT_THAT(activity.block, ElementsAre(128, 2, 1));
}

TEST(CuptiRecordsTest, CopiesAndSetsKeepTheirBytesAndSayWhereTo) {
  CUpti_ActivityMemcpy6 copy = {};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.bytes = uint64_t{5} << 32;
  copy.start = 10;
  copy.end = 20;
  const std::pair<uint8_t, const char*> names[] = {
      {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, "copy to device"},
      {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, "copy to host"},
      {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, "copy on device"},
      {CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, "copy between devices"}};
  for (const auto& [kind, name] : names) {
    copy.copyKind = kind;
    const std::optional<Record> record = Convert(copy);
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->activity.kind, DeviceActivity::Kind::kCopy);
    EXPECT_EQ(record->activity.name, name);
    EXPECT_EQ(record->activity.bytes, int64_t{5} << 32);
  }
  CUpti_ActivityMemset4 set = {};
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.bytes = 4096;
  set.start = 7;
  set.end = 9;
  const std::optional<Record> record = Convert(set);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->activity.kind, DeviceActivity::Kind::kSet);
  EXPECT_EQ(record->activity.name, "set");
  EXPECT_EQ(record->activity.bytes, 4096);
  EXPECT_EQ(record->activity.end_ns, 9);
}

TEST(CuptiRecordsTest, OtherKindsAreNoActivities) {
  CUpti_Activity other = {};
  other.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  EXPECT_FALSE(FromCupti(other).has_value());
}

CountedRange Range(const char* number, double occupancy) {
  CountedRange range;
  range.number = number;
  range.counters.achieved_occupancy = occupancy;
  return range;
}

TEST(CuptiRecordsTest, RangesGetTheNamesOfLaunchesByNumber) {
  const auto counters =
      NameRanges({Range("10", 0.3), Range("2", 0.2), Range("0", 0.1)}, {"a", "b", "a"});
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_THAT(
      *counters,
      ElementsAre(
          AllOf(Field(&KernelCounters::name, "a"), Field(&KernelCounters::achieved_occupancy, 0.1)),
          AllOf(Field(&KernelCounters::name, "b"), Field(&KernelCounters::achieved_occupancy, 0.2)),
          AllOf(Field(&KernelCounters::name, "a"),
                Field(&KernelCounters::achieved_occupancy, 0.3))));
  EXPECT_TRUE(NameRanges({}, {}).ok());
}

TEST(CuptiRecordsTest, RangesThatLaunchesDoNotFitAreRefused) {
  const absl::Status fewer = NameRanges({Range("0", 0.1)}, {"a", "b"}).status();
  EXPECT_EQ(fewer.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(fewer.message(), "CUPTI counted 1 kernels, but 2 were launched (a, b)");
  EXPECT_EQ(NameRanges({Range("first", 0.1)}, {"a"}).status().message(),
            "CUPTI names a kernel's range \"first\", which is no number");
}

}  // namespace
}  // namespace warpcall::cupti
