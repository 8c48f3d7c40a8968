#include "tests/server/runtime/ncu_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kReport[] = R"csv(==PROF== Connected to process 12
==PROF== Profiling "Copy" - 0: 0%....100% - 1 pass
"ID","Process ID","Kernel Name","sm__warps_active.avg.pct_of_peak_sustained_active","n"
"","","","%",""
"0","12","void f(int, float)","87.25","1,234.5"
"1","12","g()","5",""
)csv";

TEST(NcuReportTest, KernelsAreReadColumnByColumn) {
  const auto kernels = ParseNcu(kReport);
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  ASSERT_EQ(kernels->size(), 2u);
  EXPECT_EQ(kernels->at(0).at("Kernel Name"), "void f(int, float)");
  EXPECT_EQ(NcuNumber(kernels->at(0), "sm__warps_active.avg.pct_of_peak_sustained_active").value(),
            87.25);
  EXPECT_EQ(NcuNumber(kernels->at(0), "n").value(), 1234.5);
  EXPECT_EQ(kernels->at(1).at("ID"), "1");
}

TEST(NcuReportTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(std::string(ParseNcu("==ERROR== ERR_NVGPUCTRPERM\n").status().message()),
              HasSubstr("ERR_NVGPUCTRPERM"));
  const auto kernels = ParseNcu(kReport);
  ASSERT_TRUE(kernels.ok());
  EXPECT_THAT(std::string(NcuNumber(kernels->at(1), "n").status().message()),
              HasSubstr("no number for n"));
  EXPECT_EQ(NcuNumber(kernels->at(1), "absent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace warpcall::testing
