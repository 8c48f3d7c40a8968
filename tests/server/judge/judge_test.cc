#include "server/judge/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/registry.h"
#include "server/judge/problems.h"
#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/inspect/timed_device.h"
#include "tests/server/judge/host_code.h"

namespace warpcall::judge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kSoftmax[] = R"({"name": "mine", "op": "softmax", "types": ["float32"],
  "attributes": {"axis": -1}, "code": {"kind": "cuda", "entry": "softmax"},
  "args": ["x.ptr", "y.ptr", "rows:i64", "cols:i64"],
  "launch": {"grid": ["rows"], "block": [128]}, EXAMPLES})";
// Problems that are checked in a moment.
constexpr char kSmall[] = R"("requires": ["elements <= 20000"], )";

std::string Manifest(const std::string& rest) {
  std::string text = kSoftmax;
  return text.replace(text.find("EXAMPLES"), 8, kSmall + rest);
}

absl::Status Softmax(const HostLaunch& launch) {
  const auto rows = static_cast<int64_t>(launch.values[2]);
  const auto columns = static_cast<int64_t>(launch.values[3]);
  for (int64_t i = 0; i < rows; ++i)
    SoftmaxRow(launch.Pointer<float>(0) + i * columns, launch.Pointer<float>(1) + i * columns,
               columns);
  return absl::OkStatus();
}

class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() {
    AddCpuKernels(&registry_);
    site_.registry = &registry_;
    site_.device = device_.properties();
    site_.compile = HostCompile;
    site_.tell = [this](const v1::PushEvent& event) { events_.push_back(event); };
    site_.give_up = [this](const v1::PushVerdict& verdict) { given_up_ = verdict.status(); };
    candidate_.code = "code";
    candidate_.seed = 7;
    candidate_.iterations = 3;
  }

  v1::PushVerdict Push(const std::string& manifest, HostKernels kernels) {
    const absl::StatusOr<v1::PushVerdict> verdict = Judge(manifest, std::move(kernels));
    EXPECT_TRUE(verdict.ok()) << verdict.status();
    return verdict.value_or(v1::PushVerdict());
  }
  absl::StatusOr<v1::PushVerdict> Judge(const std::string& manifest, HostKernels kernels) {
    events_.clear();
    const auto read = manifest::ReadKernelManifest(
        manifest, [&](absl::string_view name) { return (*registry_.Find(name))->op; });
    EXPECT_TRUE(read.ok()) << read.status();
    candidate_.manifest = &*read;
    site_.open = [this, load = HostLoad(std::move(kernels))]() -> absl::StatusOr<RunSite> {
      ++opened_;
      if (!openable_.ok()) return openable_;
      return RunSite{.device = run_on_, .load = load};
    };
    if (no_gpu_) {
      site_.device = HopperProperties();
      site_.open = nullptr;
    }
    return JudgeCandidate(site_, candidate_);
  }
  v1::PushVerdict PushSoftmax(const HostKernel& kernel) {
    return Push(Manifest(R"("examples": [[[6, 33]]])"), [&] {
      return std::map<std::string, HostKernel>{{"softmax", kernel}};
    });
  }
  // A softmax that runs out of time: its verdict, or the error with which its push ends.
  std::string LateEnd() {
    const auto verdict = Judge(Manifest(R"("examples": [[[6, 33]]])"), [] {
      return std::map<std::string, HostKernel>{{"softmax", Softmax}};
    });
    if (!verdict.ok()) return verdict.status().ToString();
    return absl::StrCat(verdict->status(), ": ", verdict->reason());
  }

  std::vector<v1::PushEvent> EventsOf(v1::PushEvent::EventCase kind) const {
    std::vector<v1::PushEvent> found;
    for (const v1::PushEvent& event : events_)
      if (event.event_case() == kind) found.push_back(event);
    return found;
  }

  Registry registry_;
  CpuDevice device_{1};
  JudgeSite site_;
  Candidate candidate_;
  Device* run_on_ = &device_;
  bool no_gpu_ = false;
  absl::Status openable_;
  int opened_ = 0;
  std::vector<v1::PushEvent> events_;
  std::string given_up_;
};

TEST_F(JudgeTest, ARightKernelPasses) {
  const v1::PushVerdict verdict = PushSoftmax(Softmax);
  EXPECT_EQ(verdict.status(), "PASSED") << verdict.reason();
  EXPECT_EQ(verdict.reason(), "");
  EXPECT_EQ(verdict.name(), absl::StrCat("push:mine@", verdict.digest()));
  EXPECT_THAT(verdict.digest(), SizeIs(32));
  EXPECT_EQ(verdict.seed(), 7);
  EXPECT_GT(verdict.speedup(), 0);
  EXPECT_TRUE(verdict.deterministic());
  EXPECT_FALSE(verdict.finite_only());

  const auto compiled = EventsOf(v1::PushEvent::kCompiled);
  ASSERT_THAT(compiled, SizeIs(1));
  EXPECT_EQ(compiled[0].compiled().log(), "a warning");
  EXPECT_EQ(compiled[0].compiled().kernel(), "softmax");
  EXPECT_EQ(compiled[0].compiled().digest(), verdict.digest());
  const auto checked = EventsOf(v1::PushEvent::kChecked);
  EXPECT_GE(checked.size(), static_cast<size_t>(kProblems));
  for (const v1::PushEvent& event : checked) {
    EXPECT_TRUE(event.checked().passed()) << event.checked().detail();
    EXPECT_LE(event.checked().max_error(), 1);
    EXPECT_GT(event.checked().checked_elements(), 0);
  }
  EXPECT_THAT(checked[0].checked().problem().inputs(0).shape(), ElementsAre(6, 33));
  const auto timed = EventsOf(v1::PushEvent::kTimed);
  ASSERT_THAT(timed, SizeIs(1));
  ASSERT_GE(timed[0].timed().results_size(), 2);
  EXPECT_EQ(timed[0].timed().results(0).implementation(), "push:mine");
  EXPECT_GT(timed[0].timed().results(0).median_ns(), 0);
  EXPECT_GT(timed[0].timed().results(1).median_ns(), 0);
}

TEST_F(JudgeTest, TheSameSeedJudgesTheSame) {
  PushSoftmax(Softmax);
  const auto first = EventsOf(v1::PushEvent::kChecked);
  PushSoftmax(Softmax);
  const auto again = EventsOf(v1::PushEvent::kChecked);
  ASSERT_EQ(first.size(), again.size());
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(first[i].SerializeAsString(), again[i].SerializeAsString());
  candidate_.seed = 8;
  PushSoftmax(Softmax);
  const auto other = EventsOf(v1::PushEvent::kChecked);
  EXPECT_NE(first[1].checked().problem().SerializeAsString(),
            other[1].checked().problem().SerializeAsString());
}

// The shapes that a wrong kernel meets are not those that it was written for.
TEST_F(JudgeTest, AKernelForTheExamplesAloneIsFound) {
  const v1::PushVerdict verdict = PushSoftmax([](const HostLaunch& launch) {
    return launch.values[3] == 33 ? Softmax(launch) : absl::OkStatus();
  });
  EXPECT_EQ(verdict.status(), "INCORRECT_NUMERICAL");
  const auto checked = EventsOf(v1::PushEvent::kChecked);
  EXPECT_TRUE(checked.front().checked().passed());
  EXPECT_FALSE(checked.back().checked().passed());
  EXPECT_TRUE(checked.back().checked().has_first());
  EXPECT_THAT(EventsOf(v1::PushEvent::kTimed), IsEmpty());
}

// Every load begins anew, and a load is used for one problem alone.
TEST_F(JudgeTest, WhatWasKeptFromTheCheckIsGone) {
  int loads = 0;
  const v1::PushVerdict verdict = Push(Manifest(R"("examples": [[[6, 33]]])"), [&] {
    ++loads;
    return std::map<std::string, HostKernel>{{"softmax", Softmax}};
  });
  EXPECT_EQ(verdict.status(), "PASSED") << verdict.reason();
  EXPECT_EQ(loads, 1 + kProblems + 1);
}

// As many launches go right as the check makes, or more.
TEST_F(JudgeTest, WorkThatIsLeftOutWhileItIsTimedIsFound) {
  candidate_.iterations = 60;
  for (const int honest : {25, 30, 45}) {
    const v1::PushVerdict verdict = Push(Manifest(R"("examples": [[[64, 256]]])"), [&] {
      return std::map<std::string, HostKernel>{
          {"softmax", [runs = 0, honest](const HostLaunch& launch) mutable {
             return ++runs <= honest ? Softmax(launch) : absl::OkStatus();
           }}};
    });
    EXPECT_EQ(verdict.status(), "INCORRECT_NUMERICAL") << honest << verdict.reason();
    EXPECT_THAT(verdict.reason(), HasSubstr("while it was timed"));
  }
}

TEST_F(JudgeTest, OneWrongLaunchOfManyIsFound) {
  candidate_.iterations = 60;
  const v1::PushVerdict verdict = Push(Manifest(R"("examples": [[[64, 256]]])"), [&] {
    return std::map<std::string, HostKernel>{
        {"softmax", [runs = 0](const HostLaunch& launch) mutable {
           const absl::Status status = Softmax(launch);
           if (++runs > 25 && runs % 7 == 0) launch.Pointer<float>(1)[9] = 0.5f;
           return status;
         }}};
  });
  EXPECT_NE(verdict.status(), "PASSED");
}

// The first load is described, the second checked, and the third and the fourth are timed.
TEST_F(JudgeTest, TooFastToBeTrueIsSaidWhenASecondSeriesSaysSo) {
  DeviceProperties gpu;
  gpu.name = "timed:0";
  gpu.kind = DeviceKind::kCuda;
  gpu.memory_bytes = int64_t{1} << 30;
  gpu.l2_bytes = int64_t{1} << 20;
  gpu.shared_memory_per_block_bytes = 48 << 10;
  gpu.pin_bytes_per_second = 1e12;  // 131 ns for the problem
  warpcall::testing::TimedDevice device(gpu);
  site_.device = device.properties();
  run_on_ = &device;
  site_.clock = [&] { return device.now_ns(); };
  candidate_.problems = {
      *MakeProblem(*(*registry_.Find("softmax"))->op, {{DataType::kFloat32, {64, 256}}}, {})};
  for (const int64_t second_ns : {10, 500}) {
    int loads = 0;
    const v1::PushVerdict verdict = Push(Manifest(R"("examples": [[[6, 33]]])"), [&] {
      const int64_t ns = ++loads == 4 ? second_ns : 10;
      return std::map<std::string, HostKernel>{{"softmax", [&device, ns](const HostLaunch& launch) {
                                                  device.Pass(ns);
                                                  return Softmax(launch);
                                                }}};
    });
    EXPECT_EQ(verdict.status(), second_ns == 10 ? "BELOW_FLOOR" : "PASSED") << verdict.reason();
    EXPECT_EQ(loads, 4);
    EXPECT_THAT(EventsOf(v1::PushEvent::kTimed), SizeIs(1));
  }
}

TEST_F(JudgeTest, ACompileErrorIsTheVerdictWithTheCompilersWords) {
  candidate_.code = "wrong";
  const v1::PushVerdict verdict = PushSoftmax(Softmax);
  EXPECT_EQ(verdict.status(), "COMPILE_ERROR");
  EXPECT_EQ(verdict.reason(), "k.cu(3): error: a mistake");
  ASSERT_THAT(events_, SizeIs(1));
  EXPECT_EQ(events_[0].compiled().log(),
            "k.cu(2): warning: odd\nk.cu(3): error: a mistake\n  here");
  EXPECT_EQ(events_[0].compiled().kernel(), "");
  EXPECT_EQ(opened_, 0);  // and nobody has waited for the device
}

TEST_F(JudgeTest, ADeviceThatDoesNotOpenIsNoFaultOfTheKernel) {
  openable_ = absl::UnavailableError("the GPU is gone");
  const v1::PushVerdict verdict = PushSoftmax(Softmax);
  EXPECT_EQ(verdict.status(), "INTERNAL_ERROR");
  EXPECT_EQ(verdict.reason(), "the GPU is gone");
  ASSERT_THAT(events_, SizeIs(1));
  EXPECT_EQ(events_[0].compiled().kernel(), "softmax");
}

TEST_F(JudgeTest, WithoutAGpuItIsCompiledAndNotSupported) {
  no_gpu_ = true;
  const v1::PushVerdict verdict = PushSoftmax(Softmax);
  EXPECT_EQ(verdict.status(), "NOT_SUPPORTED");
  EXPECT_FALSE(verdict.deterministic());  // nobody knows
  EXPECT_THAT(verdict.reason(), HasSubstr("it compiles"));
  EXPECT_THAT(events_, SizeIs(1));
}

TEST_F(JudgeTest, EverythingThatTheServerLacksIsSaid) {
  site_.compile = [](const compiled::ForeignSource&, int64_t) {
    return absl::UnimplementedError("no headers");
  };
  EXPECT_EQ(PushSoftmax(Softmax).reason(), "no headers");
  no_gpu_ = true;
  const v1::PushVerdict verdict = PushSoftmax(Softmax);
  EXPECT_EQ(verdict.status(), "NOT_SUPPORTED");
  EXPECT_EQ(verdict.reason(), "no headers; no GPU of this server takes pushes either");
}

TEST_F(JudgeTest, ArgsThatDoNotFitTheKernelAreAnInvalidManifest) {
  const auto reason_with = [this](const std::string& parameters) {
    site_.compile = [parameters](const compiled::ForeignSource& source, int64_t deadline_ns) {
      EXPECT_TRUE(source.with_ptx);
      auto code = HostCompile(source, deadline_ns);
      code->ptx = absl::StrCat(".visible .entry softmax(", parameters, ")\n{}\n");
      return code;
    };
    const v1::PushVerdict verdict = PushSoftmax(Softmax);
    EXPECT_EQ(verdict.status() == "INVALID_MANIFEST", !verdict.reason().empty());
    EXPECT_EQ(EventsOf(v1::PushEvent::kCompiled).size(), 1u);
    EXPECT_EQ(EventsOf(v1::PushEvent::kCompiled)[0].compiled().files_size(), 0);
    return verdict.reason();
  };
  const std::string pointers = ".param .u64 .ptr .align 1 a, .param .u64 .ptr .align 1 b";
  EXPECT_EQ(reason_with(pointers + ", .param .u64 c, .param .u64 d"), "");
  EXPECT_EQ(reason_with(pointers + ", .param .b64 c, .param .b64 d"), "");
  EXPECT_EQ(reason_with(pointers + ", .param .u64 c, .param .u32 d"),
            "args[3] is \"cols:i64\", an integer of 8 bytes; softmax takes an integer of 4 bytes "
            "there");
  EXPECT_EQ(reason_with(pointers + ", .param .f64 c, .param .u64 d"),
            "args[2] is \"rows:i64\", an integer of 8 bytes; softmax takes a float of 8 bytes "
            "there");
  EXPECT_EQ(reason_with(".param .align 8 .b8 a[16], .param .u64 b"),
            "args[0] is \"x.ptr\", a pointer, 8 bytes; softmax takes a struct of 16 bytes there");
  EXPECT_EQ(reason_with(pointers), "args has 4 entries; softmax takes 2 parameters");
  opened_ = 0;
  EXPECT_NE(reason_with(""), "");
  EXPECT_EQ(opened_, 0);  // nothing ran
  no_gpu_ = true;
  EXPECT_EQ(reason_with(pointers), "args has 4 entries; softmax takes 2 parameters");
}

// Before anything is compiled.
TEST_F(JudgeTest, ALaunchThatCannotBeIsAnInvalidManifest) {
  std::string manifest = Manifest(R"("examples": [[[6, 33]]])");
  manifest.replace(manifest.find("\"rows\"]"), 7, "\"rows / (cols - 33)\"]");
  const v1::PushVerdict verdict =
      Push(manifest, [] { return std::map<std::string, HostKernel>(); });
  EXPECT_EQ(verdict.status(), "INVALID_MANIFEST");
  EXPECT_THAT(verdict.reason(),
              AllOf(StartsWith("launch.grid[0]: "), EndsWith(", for float32[6,33]")));
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(JudgeTest, ProblemsOfTheCallerAreJudgedAlone) {
  candidate_.problems = {
      *MakeProblem(*(*registry_.Find("softmax"))->op, {{DataType::kFloat32, {3, 5}}}, {})};
  EXPECT_EQ(PushSoftmax(Softmax).status(), "PASSED");
  EXPECT_THAT(EventsOf(v1::PushEvent::kChecked), SizeIs(1));
  EXPECT_THAT(EventsOf(v1::PushEvent::kTimed), SizeIs(1));
  candidate_.check_only = true;
  const v1::PushVerdict checked = PushSoftmax(Softmax);
  EXPECT_EQ(checked.status(), "PASSED");
  EXPECT_EQ(checked.speedup(), 0);
  EXPECT_THAT(EventsOf(v1::PushEvent::kTimed), IsEmpty());
}

TEST_F(JudgeTest, AProblemOutsideItsRangesIsNotSupported) {
  candidate_.problems = {
      *MakeProblem(*(*registry_.Find("softmax"))->op, {{DataType::kFloat32, {3, 5}}}, {})};
  const v1::PushVerdict verdict = Push(Manifest(R"("requires": ["cols % 8 == 0"])"), [] {
    return std::map<std::string, HostKernel>{{"softmax", Softmax}};
  });
  EXPECT_EQ(verdict.status(), "NOT_SUPPORTED");
  EXPECT_THAT(verdict.reason(), HasSubstr("cols % 8 == 0"));
}

TEST_F(JudgeTest, NamedImplementationsStandBesideIt) {
  candidate_.compare_with = {"manual", "cuda"};
  EXPECT_EQ(PushSoftmax(Softmax).status(), "PASSED");
  const v1::PushTimed timed = EventsOf(v1::PushEvent::kTimed)[0].timed();
  ASSERT_EQ(timed.results_size(), 3);
  EXPECT_EQ(timed.results(1).implementation(), "manual");
  EXPECT_EQ(timed.results(2).implementation(), "cuda");
  EXPECT_NE(timed.results(2).error(), "");
  candidate_.compare_with = {kNoOthers};
  const v1::PushVerdict alone = PushSoftmax(Softmax);
  EXPECT_EQ(alone.speedup(), 0);
  EXPECT_EQ(EventsOf(v1::PushEvent::kTimed)[0].timed().results_size(), 1);
}

TEST_F(JudgeTest, FiniteInputsAreSaid) {
  const v1::PushVerdict verdict =
      Push(Manifest(R"("inputs": "finite", "deterministic": false)"), [] {
        return std::map<std::string, HostKernel>{{"softmax", Softmax}};
      });
  EXPECT_EQ(verdict.status(), "PASSED") << verdict.reason();
  EXPECT_TRUE(verdict.finite_only());
  EXPECT_FALSE(verdict.deterministic());
}

TEST_F(JudgeTest, AnErrorOfALaunchIsARuntimeError) {
  const v1::PushVerdict verdict =
      PushSoftmax([](const HostLaunch&) { return absl::InternalError("an illegal\naddress"); });
  EXPECT_EQ(verdict.status(), "RUNTIME_ERROR");
  EXPECT_THAT(verdict.reason(), HasSubstr("an illegal\naddress"));
}

TEST_F(JudgeTest, ALaunchThatDoesNotEndIsGivenUp) {
  site_.launch_time_max = absl::Milliseconds(20);
  absl::Mutex mutex;
  bool ended = false;
  site_.give_up = [&](const v1::PushVerdict& verdict) {
    given_up_ = absl::StrCat(verdict.status(), " ", verdict.reason());
    absl::MutexLock lock(&mutex);
    ended = true;
  };
  PushSoftmax([&](const HostLaunch& launch) {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&ended));
    return Softmax(launch);
  });
  EXPECT_THAT(given_up_, StartsWith("TIMEOUT it does not end; a launch may take 20.0 ms"));
}

// Neither is a fault of the source: of the first nothing is known, the second takes too long.
TEST_F(JudgeTest, TimeThatEndsWhileItIsCompiledIsNoCompileError) {
  site_.compile = [](const compiled::ForeignSource&, int64_t) {
    return absl::DeadlineExceededError("compiling was stopped after 7.00 ms");
  };
  EXPECT_EQ(LateEnd(), "DEADLINE_EXCEEDED: compiling was stopped after 7.00 ms");
  candidate_.limit_ns = 60'000'000'000;
  EXPECT_EQ(LateEnd(),
            "TIMEOUT: compiling was stopped after 7.00 ms; the server judges a push for at most "
            "60.0 s");
  EXPECT_THAT(events_, IsEmpty());
  EXPECT_EQ(opened_, 0);
}

TEST_F(JudgeTest, TimeThatEndsAfterwardsIsATimeoutOfTheServersLimitAlone) {
  int64_t now_ns = 0;
  site_.clock = [&] { return now_ns; };
  site_.compile = [&](const compiled::ForeignSource& source, int64_t deadline_ns) {
    now_ns += 1'500'000'000;
    return HostCompile(source, deadline_ns);
  };
  candidate_.deadline_ns = 1'000'000'000;
  EXPECT_EQ(LateEnd(), "DEADLINE_EXCEEDED: checking was stopped; compiling took 1.50 s");
  now_ns = 0;
  candidate_.limit_ns = 1'000'000'000;
  EXPECT_EQ(LateEnd(),
            "TIMEOUT: checking was stopped; compiling took 1.50 s; the server judges a push for at "
            "most 1.00 s");
}

// The first load is described, the second checked, and the third is timed.
TEST_F(JudgeTest, TimeThatEndsWhileItIsTimedIsNoErrorOfTheKernel) {
  DeviceProperties gpu;
  gpu.name = "timed:0";
  gpu.kind = DeviceKind::kCuda;
  gpu.memory_bytes = int64_t{1} << 30;
  gpu.l2_bytes = int64_t{1} << 20;
  gpu.shared_memory_per_block_bytes = 48 << 10;
  warpcall::testing::TimedDevice device(gpu);
  site_.device = device.properties();
  run_on_ = &device;
  site_.clock = [&] { return device.now_ns(); };
  candidate_.problems = {
      *MakeProblem(*(*registry_.Find("softmax"))->op, {{DataType::kFloat32, {3, 5}}}, {})};
  candidate_.compare_with = {kNoOthers};
  candidate_.deadline_ns = device.now_ns() + 1'000'000'000;
  int loads = 0;
  const auto verdict = Judge(Manifest(R"("examples": [[[6, 33]]])"), [&] {
    if (++loads == 3) device.Pass(2'000'000'000);
    return std::map<std::string, HostKernel>{{"softmax", Softmax}};
  });
  EXPECT_EQ(loads, 3);
  EXPECT_EQ(verdict.status(),
            absl::DeadlineExceededError("timing was stopped; compiling took 0 ns"))
      << verdict.value_or(v1::PushVerdict()).ShortDebugString();
}

TEST_F(JudgeTest, TheDigestIsOfManifestAndCode) {
  const std::string first = PushSoftmax(Softmax).digest();
  candidate_.code = "other code";
  const std::string other = PushSoftmax(Softmax).digest();
  EXPECT_NE(first, other);
  const v1::PushVerdict spaced = Push(Manifest(R"(  "examples":  [[[6,33]]])"), [] {
    return std::map<std::string, HostKernel>{{"softmax", Softmax}};
  });
  EXPECT_EQ(spaced.digest(), other);
}

}  // namespace
}  // namespace warpcall::judge
