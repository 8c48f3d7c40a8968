#include "server/engine/chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "kernels/softmax/softmax.h"
#include "tests/server/engine/tuning_fixture.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;
using testing::TuningTest;

TEST_F(TuningTest, UntilAClassIsTunedTheOrderDecides) {
  EXPECT_EQ(Chosen("", 100), "first");
  EXPECT_EQ(Chosen("manual", 100), "last");
}

TEST_F(TuningTest, TheFastestOfItsClassIsServed) {
  EXPECT_EQ(table_.Take(Measured(1024, {{kFirst, 30}, {kLast, 10}, {kEven, 20}})), nullptr);
  for (const char* name : {"", "auto"}) EXPECT_EQ(Chosen(name, 1024), "last, tuned");
  EXPECT_EQ(Chosen("cpu", 1024), "even, tuned");
  EXPECT_EQ(Chosen("first", 1024), "first");
  // No row of that family was measured in this class.
  EXPECT_EQ(Chosen("reference", 1024), "truth");
}

TEST_F(TuningTest, TheFastestServesAutoOnlyIfItDoesNotDeviate) {
  Registry registry;
  registry.Add(SoftmaxOp(), SoftmaxCpuRows());
  const Kernel& kernel = registry.kernels()[0];
  const std::vector<Problem> problems = {
      *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {64, 64}}}, {})};
  const auto id_of = [&](absl::string_view name) {
    return *absl::c_find_if(kernel.rows, [&](int id) {
      return name == registry.rows()[static_cast<size_t>(id)].implementation.name;
    });
  };
  TunedClass measured = Measured(1, {{id_of("onednn_softmax"), 10}, {id_of("simd_rows"), 20}});
  measured.problem = problems[0];
  TuningTable table(registry);
  table.AddDevice(device_);
  const ServiceHistory history(static_cast<int>(registry.rows().size()));
  const Choices choices = {&registry, &table, &history, &balancer_, {{&fake_, &refusals_}}};
  table.Take(std::move(measured));
  const auto chosen = [&](absl::string_view requested) -> std::string {
    const auto choice = Chooser(&choices, {&kernel, requested, ""}).Next(problems);
    return choice.ok() ? choice->row->implementation.name : choice.status().ToString();
  };
  for (const char* const automatic : {"", "auto"}) EXPECT_EQ(chosen(automatic), "simd_rows");
  for (const char* const asked : {"library", "onednn_softmax"})
    EXPECT_EQ(chosen(asked), "onednn_softmax");
}

TEST_F(TuningTest, AClassEndsWhereItsBucketDoes) {
  table_.Take(Measured(1024, {{kLast, 10}}));
  // 2^9.75 = 861.1 and 2^10.25 = 1217.7, in steps of 16 bytes.
  EXPECT_EQ(Chosen("", 864), "last, tuned");
  EXPECT_EQ(Chosen("", 1216), "last, tuned");
  EXPECT_EQ(Chosen("", 860), "first");
  EXPECT_EQ(Chosen("", 1220), "first");
  EXPECT_EQ(Chosen("", 1022), "first");  // aligned to 8 bytes
}

TEST_F(TuningTest, OfTwoSizesTheClassOfTheFirstDecides) {
  table_.Take(Measured(1024, {{kLast, 10}}));
  const auto chosen = Choose("", {ProblemOf(1024), ProblemOf(64)});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->row->id, kLast);
  const auto by_order = Choose("", {ProblemOf(64), ProblemOf(1024)});
  ASSERT_TRUE(by_order.ok());
  EXPECT_EQ(by_order->row->id, kFirst);
  EXPECT_EQ(by_order->tuned, nullptr);
}

TEST_F(TuningTest, AnotherModelOfDeviceLearnsNothing) {
  TunedClass measured = Measured(1024, {{kLast, 10}});
  measured.device_model = "Fake 9000, 8 threads";
  table_.Take(measured);
  EXPECT_EQ(Chosen("", 1024), "first");
}

TEST_F(TuningTest, AFastestRowThatDoesNotTakeTheProblemLeavesItToTheNext) {
  // 7 to 9 share a bucket, and their alignments differ, but not here.
  Problem odd = ProblemOf(1025);
  TunedClass measured = Measured(1023, {{kEven, 10}, {kLast, 20}});
  table_.Take(measured);
  EXPECT_EQ(Chosen("", 1025), "last, tuned");
  // The row does not take one of two sizes either: the second is odd.
  table_.Take(Measured(1024, {{kEven, 10}}));
  const auto choice = Choose("", {ProblemOf(1024), odd});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->row->id, kFirst);
  EXPECT_EQ(choice->tuned, nullptr);
}

TEST_F(TuningTest, MediansRankUnstableRowsToo) {
  TunedClass measured = Measured(1024, {{kEven, 10}, {kLast, 20}});
  measured.right[0].unstable = true;
  table_.Take(measured);
  EXPECT_EQ(Chosen("", 1024), "even, tuned");
}

TEST_F(TuningTest, WhatIsLeftOutKeepsItsTimeOfThisVersion) {
  table_.Take(Measured(1024, {{kEven, 10}, {kLast, 20}}));
  table_.Take(Measured(1024, {{kLast, 30}}));
  EXPECT_EQ(Chosen("", 1024), "even, tuned");
  table_.Take(Measured(1024, {{kLast, 5}}));
  EXPECT_EQ(Chosen("", 1024), "last, tuned");
  table_.Take(Measured(1024, {{kLast, 30}}, {kEven}));
  EXPECT_EQ(Chosen("", 1024), "last, tuned");
  TunedClass newer = Measured(1024, {{kFirst, 40}});
  newer.stamp.server_version = "another";
  table_.Take(newer);
  EXPECT_EQ(Chosen("", 1024), "first, tuned");
}

// 864 and 1216 share 1024's bucket: a row's time for the one is none for the other.
TEST_F(TuningTest, WhatIsLeftOutIsComparedAsOfTheSameProblem) {
  table_.Take(Measured(864, {{kEven, 10}, {kLast, 12}}));
  table_.Take(Measured(1216, {{kEven, 14}}));  // as fast as before, for so much more
  EXPECT_EQ(Chosen("", 1024), "even, tuned");
  table_.Take(Measured(864, {{kLast, 12}}));
  EXPECT_EQ(Chosen("", 1024), "even, tuned");
  // No row ran both: by the work.
  table_.Take(Measured(1216, {{kFirst, 15}}));
  EXPECT_EQ(Chosen("", 1024), "even, tuned");
}

TEST_F(TuningTest, AWrongRowIsNeverServedForItsClass) {
  table_.Take(Measured(1024, {{kLast, 10}}, {kFirst, kTruth}));
  EXPECT_EQ(Chosen("", 1024), "last, tuned");
  EXPECT_EQ(Chosen("cpu", 1024), "even");
  EXPECT_THAT(
      Chosen("first", 1024),
      HasSubstr("first: its result for problems of this class was measured to be 3.5 times"));
  EXPECT_THAT(Chosen("reference", 1024), HasSubstr("truth: its result"));
  EXPECT_EQ(Chosen("first", 4096), "first");
  // Nor as the second of two sizes.
  const auto choice = Choose("cpu", {ProblemOf(4096), ProblemOf(1024)});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->row->id, kEven);
  // Nor if it was fastest for the first.
  table_.Take(Measured(4096, {{kFirst, 10}, {kLast, 20}}));
  const auto both = Choose("", {ProblemOf(4096), ProblemOf(1024)});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->row->id, kLast);
  EXPECT_NE(both->tuned, nullptr);
  // If no measured row is right, the order goes on without the wrong ones.
  table_.Take(Measured(16, {}, {kFirst}));
  EXPECT_EQ(Chosen("", 16), "even");
}

TEST_F(TuningTest, AWrongRowStaysSoUntilAnotherVersionMeasuresItRight) {
  table_.Take(Measured(1024, {{kLast, 10}}, {kFirst}));
  // Another tuning that leaves the row out, and one that finds nothing wrong.
  table_.Take(Measured(1024, {{kLast, 10}}));
  EXPECT_THAT(Chosen("first", 1024), HasSubstr("its result"));
  table_.Take(Measured(1000, {{kFirst, 1}, {kLast, 10}}));
  EXPECT_EQ(Chosen("", 1024), "last, tuned");
  TunedClass newer = Measured(1024, {{kFirst, 1}, {kLast, 10}});
  newer.stamp.server_version = "1.1";
  table_.Take(newer);
  EXPECT_EQ(Chosen("", 1024), "first, tuned");
}

TEST_F(TuningTest, TheOldestClassMakesRoom) {
  for (size_t i = 0; i <= TuningTable::kClassesMax; ++i) {
    TunedClass measured = Measured(1024, {{kLast, 10}});
    measured.device_model = std::to_string(i);
    measured.stamp.started_unix_ns = static_cast<int64_t>(i == 7 ? 0 : i + 1);
    table_.Take(measured);
  }
  const auto classes = table_.Classes();
  EXPECT_EQ(classes.size(), TuningTable::kClassesMax);
  for (const auto& tuned : classes) EXPECT_NE(tuned->device_model, "7");
}

// For a race detector.
TEST_F(TuningTest, RequestsChooseWhileAClassIsTuned) {
  std::thread requests([this] {
    for (int i = 0; i < 2000; ++i) {
      const std::string chosen = Chosen("", 1024);
      ASSERT_TRUE(chosen == "first" || chosen == "last, tuned") << chosen;
    }
  });
  for (int i = 0; i < 200; ++i) table_.Take(Measured(1024, {{kLast, 10.0 + i}}));
  requests.join();
  EXPECT_EQ(Chosen("", 1024), "last, tuned");
}

}  // namespace
}  // namespace warpcall
