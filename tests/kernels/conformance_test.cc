// Every row of the registry against its op's definition in float64, on every case of the op in
// every data type. Outputs and workspace are poisoned first; NaN and infinity must stand exactly
// where the definition has them; finite values obey the op's bounds, element by element. Rows
// written for vectors run once per instruction set that this CPU has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/check/compare.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

// NaN in every data type.
constexpr uint8_t kPoisonNan = 0xFF;
// 0x42 is 48.6 in float32, 48.5 in bfloat16, 3.1 in float16: for cases whose results may be NaN.
constexpr uint8_t kPoisonFinite = 0x42;

// A row and its results.
struct Outcome {
  TestedRow tested;
  Allowance allowance;
  int ran = 0;
  int refused = 0;
  std::string reason;  // the last refusal's
  double worst = 0;    // error, in units of its bound
};

class ConformanceTest : public ::testing::TestWithParam<CatalogEntry> {
 protected:
  const Op& op_ = *GetParam().op;
  const OpCases cases_ = op_.cases();

  void RunCase(const Case& test_case, std::vector<Outcome>& outcomes) {
    SCOPED_TRACE(absl::StrCat("case ", test_case.name, ", seed ", RunSeed()));
    std::vector<TensorSpec> specs;
    for (const Dims& dims : test_case.shapes) specs.push_back({GetParam().data_type, dims});
    const absl::StatusOr<Problem> problem = MakeProblem(op_, specs, test_case.attributes);
    ASSERT_TRUE(problem.ok()) << problem.status();
    if (!IsSmallEnough(*problem)) return;
    std::vector<Memory> inputs;
    for (size_t i = 0; i < specs.size(); ++i) {
      inputs.push_back(FilledInput(
          specs[i], test_case.FillOf(i),
          absl::StrCat(op_.name, test_case.name, DataTypeName(GetParam().data_type), i)));
    }
    const uint8_t poison = test_case.fill == Fill::kSpecial ? kPoisonFinite : kPoisonNan;
    std::optional<Truth> truth;  // once somebody needs it
    for (Outcome& outcome : outcomes) {
      const absl::Status supported = Supports(outcome.tested, *problem);
      if (!supported.ok()) {
        ++outcome.refused;
        outcome.reason = std::string(supported.message());
        continue;
      }
      SCOPED_TRACE(absl::StrCat("row ", outcome.tested.name));
      if (!truth) truth = TruthOf({op_, cases_, *problem, OperandsOf(inputs)}, TruthPool());
      const auto actual = RunTested(outcome.tested, *problem, inputs, poison);
      ++outcome.ran;
      if (!actual.ok()) {
        ADD_FAILURE() << actual.status();
        continue;
      }
      const Disagreement found = Compare(*truth, (*actual)[0].data(), outcome.allowance);
      EXPECT_EQ(found.wrong, 0) << "elements of " << truth->spec.elements() << ":\n" << found.text;
      outcome.worst = std::max(outcome.worst, found.worst);
    }
  }
};

TEST_P(ConformanceTest, EveryRowAgreesWithTheDefinition) {
  std::vector<Outcome> outcomes;
  for (TestedRow& tested : TestedRows(op_)) {
    const Allowance allowance = AllowanceFor(cases_, tested.row->name, GetParam().data_type);
    outcomes.push_back({.tested = std::move(tested), .allowance = allowance, .reason = {}});
  }
  for (const Case& test_case : cases_.cases)
    if (test_case.IsFor(GetParam().data_type)) RunCase(test_case, outcomes);
  for (const Outcome& outcome : outcomes) {
    std::printf("  %-40s %4d cases, at worst %.2f of the bound, %d refused%s%s\n",
                outcome.tested.name.c_str(), outcome.ran, outcome.worst, outcome.refused,
                outcome.refused > 0 ? ": " : "", outcome.reason.c_str());
    // The CPU decides which 16-bit types a vendor's library takes; every other row is up to us.
    const Implementation& row = *outcome.tested.row;
    const bool excused =
        row.family == Family::kLibrary && GetParam().data_type != DataType::kFloat32;
    const bool listed = absl::c_linear_search(row.data_types, GetParam().data_type);
    EXPECT_TRUE(outcome.ran > 0 || excused || !listed)
        << outcome.tested.name << " took no case: " << outcome.reason;
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, ConformanceTest, ::testing::ValuesIn(Catalog()), CatalogName);

TEST(ConformanceCoverage, EveryKernelHasCases) {
  for (const Kernel& kernel : FullRegistry().kernels()) {
    ASSERT_NE(kernel.op->cases, nullptr) << kernel.op->name;
    EXPECT_FALSE(kernel.op->cases().cases.empty()) << kernel.op->name;
    EXPECT_STRNE(kernel.op->cases().tolerance, "") << kernel.op->name;
  }
}

// An allowance for an unknown row would have no effect and no visible purpose.
TEST(ConformanceCoverage, EveryAllowanceHasARowAndAReason) {
  const bool has_gpu_rows = absl::c_any_of(FullRegistry().rows(), [](const auto& row) {
    return row.implementation.device_kind == DeviceKind::kCuda;
  });
  for (const Kernel& kernel : FullRegistry().kernels()) {
    const OpCases cases = kernel.op->cases();
    for (const Allowance& allowance : cases.allowances) {
      EXPECT_THAT(allowance.reason, ::testing::EndsWith(".")) << allowance.row;
      const bool found = absl::c_any_of(kernel.rows, [&](int id) {
        const Implementation& row = FullRegistry().rows()[id].implementation;
        return absl::string_view(row.name) == allowance.row;
      });
      const bool of_gpu = absl::string_view(allowance.row).substr(0, 2) == "cu";
      EXPECT_TRUE(found || (of_gpu && !has_gpu_rows)) << allowance.row;
    }
  }
}

}  // namespace
}  // namespace warpcall::testing
