#include "kernels/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/check/cases.h"
#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "kernels/softmax/softmax.h"

namespace warpcall {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

absl::Status RefuseOdd(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() % 2 == 0) return absl::OkStatus();
  return absl::UnimplementedError("needs an even number of elements");
}

absl::Status LaunchNothing(const Problem&, const Operands&, const LaunchContext&) {
  return absl::OkStatus();
}

Implementation MakeRow(const char* name, Family family, DeviceKind kind) {
  return {.name = name,
          .family = family,
          .device_kind = kind,
          .summary = "",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(LaunchNothing)};
}

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() {
    Implementation picky = MakeRow("picky", Family::kCpu, DeviceKind::kCpu);
    picky.supports = RefuseOdd;
    registry_.Add(GeluOp(), {picky, MakeRow("plain", Family::kReference, DeviceKind::kCpu)});
    registry_.Add(IdentityOp(), {MakeRow("copy", Family::kCpu, DeviceKind::kCpu)});
    registry_.Add(GeluOp(), {MakeRow("warp", Family::kCuda, DeviceKind::kCuda)});
    cpu_.name = "cpu";
    gpu_.name = "cuda:0";
    gpu_.kind = DeviceKind::kCuda;
  }

  absl::StatusOr<std::string> Select(absl::string_view requested, int64_t elements,
                                     const DeviceProperties& device,
                                     DataType type = DataType::kFloat32) {
    const absl::StatusOr<Problem> problem = MakeProblem(GeluOp(), {{type, {elements}}}, {});
    if (!problem.ok()) return problem.status();
    const absl::StatusOr<const Row*> row =
        registry_.Select(registry_.kernels()[0], requested, *problem, device);
    if (!row.ok()) return row.status();
    return std::string((*row)->implementation.name);
  }

  Registry registry_;
  DeviceProperties cpu_;
  DeviceProperties gpu_;
};

TEST_F(RegistryTest, IdsAreDenseAndRowsOfOneOpStayTogether) {
  ASSERT_EQ(registry_.kernels().size(), 2u);
  ASSERT_EQ(registry_.rows().size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(registry_.rows()[i].id, i);
  EXPECT_THAT(registry_.kernels()[0].rows, ::testing::ElementsAre(0, 1, 3));
  EXPECT_EQ(registry_.rows()[2].kernel, 1);
}

TEST_F(RegistryTest, FindListsWhatExists) {
  ASSERT_TRUE(registry_.Find("identity").ok());
  EXPECT_EQ((*registry_.Find("identity"))->op, &IdentityOp());
  const absl::Status status = registry_.Find("gelu2").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "kernel \"gelu2\" is unknown; available: gelu, identity");
}

TEST_F(RegistryTest, AutoTakesTheFirstRowThatSupportsTheProblem) {
  EXPECT_EQ(*Select("", 2, cpu_), "picky");
  EXPECT_EQ(*Select("auto", 2, cpu_), "picky");
  EXPECT_EQ(*Select("auto", 3, cpu_), "plain");
  EXPECT_EQ(*Select("auto", 3, gpu_), "warp");
}

TEST_F(RegistryTest, OfSeveralSizesEveryOneMustBeSupported) {
  const Kernel& gelu = registry_.kernels()[0];
  const auto select = [&](absl::string_view requested, std::vector<int64_t> sizes) {
    std::vector<Problem> problems;
    for (const int64_t size : sizes)
      problems.push_back(*MakeProblem(GeluOp(), {{DataType::kFloat32, {size}}}, {}));
    return registry_.Select(gelu, requested, problems, cpu_);
  };
  EXPECT_STREQ((*select("", {4, 2}))->implementation.name, "picky");
  EXPECT_STREQ((*select("", {4, 3}))->implementation.name, "plain");
  EXPECT_STREQ((*select("", {3, 4}))->implementation.name, "plain");
  EXPECT_EQ(select("picky", {4, 3}).status().message(),
            "no implementation of gelu takes float32[4] and float32[3] on cpu: picky: needs an "
            "even number of elements");
}

TEST_F(RegistryTest, TakesRowsAndFamiliesByName) {
  EXPECT_EQ(*Select("plain", 2, cpu_), "plain");
  EXPECT_EQ(*Select("reference", 2, cpu_), "plain");
  EXPECT_EQ(*Select("cuda", 2, gpu_), "warp");
  EXPECT_EQ(*Select("reference:plain", 2, cpu_), "plain");
  EXPECT_EQ(*Select("cuda:warp", 2, gpu_), "warp");
  for (const char* const name : {"cpu:plain", "cpu:", ":plain", "cpuplain", "plain:", "cpu:cpu"})
    EXPECT_EQ(Select(name, 2, cpu_).status().code(), absl::StatusCode::kNotFound) << name;
}

TEST_F(RegistryTest, APinnedNameIsOfOneRow) {
  const Row& picky = registry_.rows()[0];
  EXPECT_EQ(PinnedName(picky.implementation), "cpu:picky");
  for (const char* const name : {"picky", "cpu:picky"}) EXPECT_TRUE(Registry::Pins(picky, name));
  for (const char* const name : {"", "auto", "cpu", "cpu:", "cuda:picky", "cpu:plain", "pick"})
    EXPECT_FALSE(Registry::Pins(picky, name)) << name;
}

TEST_F(RegistryTest, UnknownImplementationListsRowsAndFamilies) {
  const absl::Status status = Select("triton", 2, cpu_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "implementation \"triton\" of gelu is unknown; available: cpu, reference, cuda; their "
            "variants: cpu:picky, reference:plain, cuda:warp");
}

TEST_F(RegistryTest, AFamilyOfGpusIsNoTypingErrorWhereTheBuildHasNone) {
  Registry cpu;
  cpu.Add(GeluOp(), {MakeRow("plain", Family::kReference, DeviceKind::kCpu)});
  const auto message = [&cpu](const char* name) {
    return std::string(cpu.CheckImplementationName(cpu.kernels()[0], name).message());
  };
  for (const char* const name : {"cuda", "cuda:two_pass", "triton", "compiled"})
    EXPECT_THAT(message(name), HasSubstr("; this build of the server has no kernels for GPUs"));
  EXPECT_THAT(message("manual"), ::testing::Not(HasSubstr("GPU")));
}

TEST_F(RegistryTest, RefusalGivesEachRowsReason) {
  const absl::Status picky = Select("picky", 3, cpu_).status();
  EXPECT_EQ(picky.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(picky.message(),
            "no implementation of gelu takes float32[3] on cpu: picky: needs an even number of "
            "elements");
  const absl::Status half = Select("auto", 2, cpu_, DataType::kFloat16).status();
  EXPECT_EQ(half.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(half.message()),
              AllOf(HasSubstr("picky: does not take float16; takes float32, bfloat16"),
                    HasSubstr("plain: does not take float16"),
                    HasSubstr("warp: runs on cuda devices, and cpu is a cpu device")));
}

TEST_F(RegistryTest, RowOfAnotherKindOfDeviceIsRefusedByName) {
  const absl::Status status = Select("warp", 2, cpu_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("warp: runs on cuda devices"));
}

TEST_F(RegistryTest, AnUnavailableRowIsPassedOverAndSaysWhy) {
  registry_.SetAvailability(0, {Unavailability::Cause::kSelfTest, "failed its self-test: how"});
  EXPECT_EQ(*Select("auto", 2, cpu_), "plain");
  for (const char* const name : {"picky", "cpu"}) {
    const absl::Status status = Select(name, 2, cpu_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(status.message(),
              "no implementation of gelu takes float32[2] on cpu: picky: failed its self-test: "
              "how");
  }
}

TEST_F(RegistryTest, ARowThatIsNotTriedYetMayBeAskedForAgain) {
  registry_.SetAvailability(0, {Unavailability::Cause::kNotTried, "not tried yet"});
  EXPECT_EQ(*Select("auto", 2, cpu_), "plain");
  const absl::Status waits = Select("picky", 2, cpu_).status();
  EXPECT_EQ(waits.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waits.message(),
            "no implementation of gelu takes float32[2] on cpu: picky: not tried yet");
  // A problem that the row will never run is not worth waiting for.
  const absl::Status never = Select("picky", 3, cpu_).status();
  EXPECT_EQ(never.code(), absl::StatusCode::kUnimplemented) << never;
  registry_.SetAvailability(0, {});
  EXPECT_EQ(*Select("auto", 2, cpu_), "picky");
}

// softmax allows onednn_softmax to give 0 for small numbers, and its bfloat16 a second rounding.
TEST(RegistryDeviationTest, AutoRunsNoRowThatDeviatesForTheType) {
  Registry registry;
  const std::vector<DataType> types = {DataType::kFloat32, DataType::kFloat16};
  std::vector<Implementation> rows = {MakeRow("onednn_softmax", Family::kLibrary, DeviceKind::kCpu),
                                      MakeRow("plain", Family::kReference, DeviceKind::kCpu)};
  for (Implementation& row : rows) row.data_types = types;
  registry.Add(SoftmaxOp(), rows);
  DeviceProperties device;
  device.name = "cpu";
  const auto select = [&](absl::string_view requested,
                          DataType type) -> absl::StatusOr<std::string> {
    const Problem problem = *MakeProblem(SoftmaxOp(), {{type, {4}}}, {});
    const auto row = registry.Select(registry.kernels()[0], requested, problem, device);
    if (!row.ok()) return row.status();
    return std::string((*row)->implementation.name);
  };
  for (const char* const automatic : {"", "auto"}) {
    EXPECT_EQ(*select(automatic, DataType::kFloat32), "plain");
    EXPECT_EQ(*select(automatic, DataType::kFloat16), "onednn_softmax");  // has no allowance
  }
  for (const char* const asked : {"onednn_softmax", "library"})
    EXPECT_EQ(*select(asked, DataType::kFloat32), "onednn_softmax");
  registry.SetAvailability(1, {Unavailability::Cause::kSelfTest, "failed its self-test"});
  EXPECT_THAT(std::string(select("", DataType::kFloat32).status().message()),
              AllOf(HasSubstr("onednn_softmax: runs only where it, or its family, is asked for. "
                              "oneDNN's exp gives 0"),
                    HasSubstr("plain: failed its self-test")));
}

TEST_F(RegistryTest, ANameThatIsTakenIsADefect) {
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda})
    EXPECT_DEATH(registry_.Add(GeluOp(), {MakeRow("plain", Family::kCpu, kind)}),
                 "implementation.name != .*op.name, row.name: gelu, plain");
}

TEST(CatalogTest, RowNamesAreUniqueWithinAnOpAndDifferFromFamilies) {
  Registry registry;
  AddCpuKernels(&registry);
  const std::set<std::string> families = {"reference", "cpu",      "manual",  "cuda",
                                          "triton",    "compiled", "library", "auto"};
  for (const Kernel& kernel : registry.kernels()) {
    std::set<std::string> names;
    for (int id : kernel.rows) {
      const std::string name = registry.rows()[id].implementation.name;
      EXPECT_TRUE(names.insert(name).second) << kernel.op->name << " has two rows " << name;
      EXPECT_EQ(families.count(name), 0u) << name;
    }
  }
}

TEST(CatalogTest, EveryCpuKernelHasAReferenceLast) {
  Registry registry;
  AddCpuKernels(&registry);
  ASSERT_FALSE(registry.kernels().empty());
  for (const Kernel& kernel : registry.kernels()) {
    for (int id : kernel.rows) {
      const bool is_last = id == kernel.rows.back();
      EXPECT_EQ(registry.rows()[id].implementation.family == Family::kReference, is_last)
          << kernel.op->name;
    }
  }
}

// Users who choose among rows read the summary before the tolerance.
TEST(CatalogTest, WhatIsLessExactSaysSoInItsSummary) {
  Registry registry;
  AddCpuKernels(&registry);
  std::map<std::string, int> said;
  for (const Row& row : registry.rows()) {
    const Op& op = *registry.kernels()[static_cast<size_t>(row.kernel)].op;
    if (op.cases == nullptr) continue;
    const std::vector<Allowance> allowances = op.cases().allowances;
    for (const Allowance& allowance : allowances) {
      if (absl::string_view(row.implementation.name) != allowance.row) continue;
      const auto says = [&](bool known, const char* word) {
        if (!known) return;
        ++said[word];
        EXPECT_THAT(std::string(row.implementation.summary), HasSubstr(word))
            << op.name << " by " << allowance.row << ": " << allowance.reason;
      };
      says(allowance.roundings > 1, "twice");
      says(absl::StrContains(allowance.reason, " sums "), "sums");
      says(allowance.flushes_subnormal_inputs, "subnormals");
    }
  }
  EXPECT_THAT(said, UnorderedElementsAre(Pair("twice", 1), Pair("sums", 2), Pair("subnormals", 2)));
}

}  // namespace
}  // namespace warpcall
