#include "server/engine/tuning_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/fused/fused.h"
#include "kernels/softmax/softmax.h"
#include "server/engine/tuning_text.h"
#include "tests/server/engine/tuning_fixture.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadFile;
using testing::TempFolder;

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class TuningCacheTest : public testing::TuningTest {
 protected:
  // Opens the file as a starting server does.
  std::unique_ptr<TuningCache> Open(TuningTable* table) {
    auto cache = TuningCache::Open(registry_, table, path_);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return cache.ok() ? *std::move(cache) : nullptr;
  }
  // A table as that server has it, and how often its file could not be used.
  std::vector<std::shared_ptr<const TunedClass>> Read(int64_t errors = 0) {
    TuningTable table(registry_);
    table.AddDevice(device_);
    const auto cache = Open(&table);
    EXPECT_EQ(cache->errors().read, errors);
    return table.Classes();
  }
  std::string Learn(const std::vector<TunedClass>& all) {
    ::testing::internal::CaptureStderr();
    const auto cache = Open(&table_);
    for (const TunedClass& measured : all) cache->Learn(measured);
    EXPECT_EQ(cache->errors().write, 0);
    return ::testing::internal::GetCapturedStderr();
  }

  TempFolder folder_;
  std::string path_ = folder_.Path("tuning");
};

TEST_F(TuningCacheTest, WhatWasLearnedIsThereAtTheNextStart) {
  TunedClass measured = Measured(1024, {{kLast, 10.25}, {kEven, 1e9 / 3}}, {kFirst});
  measured.right[1].unstable = true;
  measured.wrong[0].max_error = std::numeric_limits<double>::infinity();
  measured.stamp = {1763877600000000000, "1.0 \"beta\"\n", "580.65", 345, 1980, "power cap, heat"};
  Learn({measured, Measured(16, {{kTruth, 5}})});
  const auto classes = Read();
  ASSERT_EQ(classes.size(), 2u);
  const TunedClass& read = classes[0]->problem == measured.problem ? *classes[0] : *classes[1];
  EXPECT_TRUE(read.problem == measured.problem);
  EXPECT_EQ(read.device_model, "Fake 9000, 7 threads");
  EXPECT_EQ(read.stamp.started_unix_ns, measured.stamp.started_unix_ns);
  EXPECT_EQ(read.stamp.server_version, measured.stamp.server_version);
  EXPECT_EQ(read.stamp.driver, "580.65");
  EXPECT_EQ(read.stamp.sm_clock_mhz_min, 345);
  EXPECT_EQ(read.stamp.sm_clock_mhz_max, 1980);
  EXPECT_EQ(read.stamp.throttle_reasons, "power cap, heat");
  ASSERT_EQ(read.right.size(), 2u);
  EXPECT_EQ(read.right[0].row, kLast);
  EXPECT_EQ(read.right[1].median_ns, 1e9 / 3);
  EXPECT_EQ(read.right[1].median_low_ns, measured.right[1].median_low_ns);
  EXPECT_EQ(read.right[1].median_high_ns, measured.right[1].median_high_ns);
  EXPECT_TRUE(read.right[1].unstable);
  ASSERT_EQ(read.wrong.size(), 1u);
  EXPECT_EQ(read.wrong[0].row, kFirst);
  EXPECT_EQ(read.wrong[0].max_error, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(read.shipped);
  // Read and written again it is the same, and nothing else lies beside it.
  const std::string before = ReadFile(path_);
  Learn({Measured(16, {{kTruth, 5}})});
  EXPECT_EQ(ReadFile(path_), before);
  EXPECT_EQ(folder_.Names(), std::vector<std::string>{"tuning"});
}

TEST_F(TuningCacheTest, ProblemsOfEveryKindComeBackFromTheirText) {
  Registry registry;
  Implementation row = registry_.rows()[0].implementation;
  registry.Add(FusedOp(), {row});
  registry.Add(SoftmaxOp(), {row});
  const auto problem = MakeProblem(
      FusedOp(), {{DataType::kBFloat16, {3, 5}}, {DataType::kBFloat16, {5}}},
      {{"expression", std::string("where(x0 < 1e-5, x0 , x1)")}, {"seed", int64_t{-9}}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto strided =
      MakeProblem(SoftmaxOp(), {{DataType::kFloat16, {4, 5, 6}}}, {{"axis", int64_t{1}}});
  ASSERT_TRUE(strided.ok());
  EXPECT_EQ(ToText(FusedOp(), *problem),
            "bfloat16[3,5] bfloat16[5] expression=\"where(x0 < 1e-5, x0 , x1)\" seed=-9");
  EXPECT_EQ(ToText(SoftmaxOp(), *strided), "float16[4,5,6] axis=1");
  std::vector<std::shared_ptr<const TunedClass>> classes;
  for (const auto& [kernel, known] : {std::pair(0, *problem), std::pair(1, *strided)})
    classes.push_back(std::make_shared<const TunedClass>(
        TunedClass{.kernel = kernel, .device_model = "A \"B\"", .problem = known}));
  const auto read = ParseTuning(registry, FormatTuning(registry, classes, {}));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->classes.size(), 2u);
  EXPECT_TRUE(read->classes[0].problem == *problem);
  EXPECT_TRUE(read->classes[1].problem == *strided);
  EXPECT_EQ(read->classes[1].device_model, "A \"B\"");
}

TEST_F(TuningCacheTest, WhatThisServerDoesNotKnowIsKept) {
  Registry other;
  other.Add(SoftmaxOp(), {registry_.rows()[0].implementation});
  auto tuned = std::make_shared<TunedClass>();
  tuned->kernel = 0;
  tuned->device_model = "Other";
  tuned->problem = *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {4, 5}}}, {});
  tuned->right.push_back({0, 5, 5, 5, false});
  WriteFile(path_, FormatTuning(other, {{tuned}}, {}));
  Learn({Measured(1024, {{kLast, 10}})});
  EXPECT_THAT(ReadFile(path_), HasSubstr("class \"Other\" softmax float32[4,5]\n"));
  EXPECT_THAT(ReadFile(path_), HasSubstr("\nright first 5 5 5 stable\n"));
  EXPECT_EQ(Read().size(), 1u);
  const auto theirs = ParseTuning(other, ReadFile(path_));
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(theirs->classes.size(), 1u);
  EXPECT_EQ(theirs->unknown.size(), 1u);
}

// Each byte changed, each length cut: never used, not even by half.
TEST_F(TuningCacheTest, ADamagedFileIsNotUsedAtAll) {
  Learn({Measured(1024, {{kLast, 10}}), Measured(16, {{kTruth, 5}}, {kFirst})});
  const std::string whole = ReadFile(path_);
  ASSERT_TRUE(ParseTuning(registry_, whole).ok());
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(ParseTuning(registry_, changed).ok()) << i;
    EXPECT_FALSE(ParseTuning(registry_, whole.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(ParseTuning(registry_, absl::StrCat(whole, "right last 1 1 1 stable\n")).ok());
  WriteFile(path_, whole.substr(0, whole.size() / 2));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Read(/*errors=*/1).size(), 0u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("level=error msg=\"the tuning cache is not used\""));
  EXPECT_EQ(ReadFile(absl::StrCat(path_, ".damaged")), whole.substr(0, whole.size() / 2));
  EXPECT_EQ(Read().size(), 0u);  // there is none any more
}

TEST_F(TuningCacheTest, WhatCanBeNeitherReadNorMovedAsideIsNotReplaced) {
  WriteFile(path_, "what somebody may want to look at");
  ASSERT_EQ(mkdir(absl::StrCat(path_, ".damaged").c_str(), 0700), 0);
  ::testing::internal::CaptureStderr();
  const auto cache = Open(&table_);
  cache->Learn(Measured(1024, {{kLast, 10}}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("could be neither read nor moved aside, so it is not replaced"));
  EXPECT_EQ(cache->errors().read, 1);
  EXPECT_EQ(cache->errors().write, 1);
  EXPECT_EQ(ReadFile(path_), "what somebody may want to look at");
  EXPECT_EQ(Chosen("", 1024), "last, tuned");
}

TEST_F(TuningCacheTest, AFileOfAnotherVersionIsNotUsed) {
  Learn({Measured(1024, {{kLast, 10}})});
  const std::string newer = absl::StrReplaceAll(ReadFile(path_), {{"table 1\n", "table 2\n"}});
  WriteFile(path_, newer);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Read(/*errors=*/1).size(), 0u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("of another version"));
}

// Lines that only a program that is wrong, or a person, would write, with the right checksum.
TEST_F(TuningCacheTest, LinesThatSayWhatCannotBeAreRefused) {
  Learn({Measured(1024, {{kLast, 10}}, {kFirst})});
  const std::string whole = ReadFile(path_);
  const std::string body =
      whole.substr(whole.find('\n') + 1, whole.find("\nend ") - whole.find('\n'));
  const std::vector<std::string> unknown = {body};
  ASSERT_TRUE(ParseTuning(registry_, FormatTuning(registry_, {}, unknown)).ok());
  for (const auto& [is, becomes] :
       std::vector<std::pair<std::string, std::string>>{{"right last 10 ", "right last -1 "},
                                                        {"right last 10 ", "right last nan "},
                                                        {"right last 10 ", "right last "},
                                                        {" stable", " steady"},
                                                        {"wrong first 3.5", "wrong first much"},
                                                        {"stamp 1000 ", "stamp soon "},
                                                        {"class \"", "class "},
                                                        {"right ", "maybe "}}) {
    const std::string changed = absl::StrReplaceAll(body, {{is, becomes}});
    ASSERT_NE(changed, body) << is;
    const auto read = ParseTuning(registry_, FormatTuning(registry_, {}, {{changed}}));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << becomes;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("line ")) << becomes;
  }
  // A row that is no more, and a problem that the op does not have, are no damage.
  const auto gone = ParseTuning(
      registry_, FormatTuning(registry_, {}, {{absl::StrReplaceAll(body, {{"last", "lost"}})}}));
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_TRUE(gone->classes.at(0).right.empty());
  const auto other = ParseTuning(
      registry_,
      FormatTuning(registry_, {}, {{absl::StrReplaceAll(body, {{"[1024]", "[1024] [2]"}})}}));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->unknown.size(), 1u);
}

TEST_F(TuningCacheTest, APlaceWhereThereCanBeNoFileIsRefusedAtStart) {
  for (const std::string& path : {folder_.Path("nowhere/tuning"), folder_.Path("")}) {
    const auto cache = TuningCache::Open(registry_, &table_, path);
    EXPECT_EQ(cache.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(cache.status().message()), HasSubstr(path));
  }
}

TEST_F(TuningCacheTest, AFileThatCannotBeWrittenKeepsNothingFromBeingServed) {
  const auto cache = Open(&table_);
  ASSERT_NE(cache, nullptr);
  // A folder stands where the file would go.
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  ASSERT_EQ(mkdir((path_ + "/full").c_str(), 0700), 0);
  cache->Learn(Measured(1024, {{kLast, 10}}));
  EXPECT_EQ(cache->errors().write, 1);
  EXPECT_EQ(Chosen("", 1024), "last, tuned");
  EXPECT_EQ(folder_.Names(), std::vector<std::string>{"tuning"});
}

TEST_F(TuningCacheTest, ARowThatBecameSlowerIsLoggedWithBothStamps) {
  const std::vector<std::pair<int, double>> was = {{kFirst, 100}, {kLast, 100}, {kEven, 100}};
  TunedClass before = Measured(1024, was);
  TunedClass now = Measured(1024, {{kFirst, 106}, {kLast, 104}, {kEven, 110}});
  now.stamp = {.started_unix_ns = 2000, .server_version = "1.1"};
  // Slower than its share allows, but within both runs' noise.
  now.right[2].median_low_ns = 100;
  const std::string log = Learn({before, now});
  EXPECT_THAT(log, HasSubstr("level=warning msg=\"a row is slower than it was\" kernel=double "
                             "implementation=cpu:first problem=float32[1024]"));
  EXPECT_THAT(log, HasSubstr("percent=6 was_ns=100 now_ns=106 was=\"at 1000 ns, server 1.0\" "
                             "now=\"at 2000 ns, server 1.1\""));
  EXPECT_THAT(log, Not(HasSubstr("implementation=last")));
  EXPECT_THAT(log, Not(HasSubstr("implementation=even")));
  // Another problem of the class is no measure.
  now = Measured(1000, {{kFirst, 500}});
  EXPECT_THAT(Learn({now}), Not(HasSubstr("slower")));
}

TEST_F(TuningCacheTest, TheShippedTableIsWhole) {
  const auto text = ParseTuning(registry_, ShippedTuning());
  ASSERT_TRUE(text.ok()) << text.status();
  // Shipped classes are not written into anybody's file.
  TuningTable table(registry_);
  const auto cache = Open(&table);
  TunedClass shipped = Measured(64, {{kLast, 10}});
  shipped.shipped = true;
  table.Take(shipped);
  const size_t classes = table.Classes().size();
  cache->Learn(Measured(1024, {{kLast, 10}}));
  EXPECT_EQ(table.Classes().size(), classes + 1);
  EXPECT_EQ(ParseTuning(registry_, ReadFile(path_))->classes.size(), 1u);
}

}  // namespace
}  // namespace warpcall
