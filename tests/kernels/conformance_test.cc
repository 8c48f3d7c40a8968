// Every row of the registry against its op's definition in float64, on every case of the op in
// every data type. Outputs and workspace are poisoned first; NaN and infinity must stand exactly
// where the definition has them; finite values obey the op's bounds, element by element. Rows
// written for vectors run once per instruction set that this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/check/compare.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/vector_targets.h"

namespace warpcall::testing {
namespace {

// NaN in every data type.
constexpr uint8_t kPoisonNan = 0xFF;
// 48.6 in float32, 48.5 in bfloat16, 3.1 in float16: for cases whose results may be NaN.
constexpr uint8_t kPoisonFinite = 0x42;

// A row, and the instruction set to run it with.
struct Variant {
  Variant(const Implementation* row_in, int64_t target_in, std::string name_in)
      : row(row_in), target(target_in), name(std::move(name_in)) {}

  const Implementation* row;
  int64_t target;
  std::string name;
  int ran = 0;
  int refused = 0;
  std::string reason;  // of the last refusal
  Allowance allowance;
  double worst = 0;  // error, in units of its bound
};

// WARPCALL_TEST_DEVICE_KIND=cuda leaves the CPU's rows out, "cpu" the GPU's.
bool Runs(const Implementation& row) {
  if (row.device_kind == DeviceKind::kCuda && TestGpuProperties() == nullptr) return false;
  const char* const wanted = std::getenv("WARPCALL_TEST_DEVICE_KIND");
  return wanted == nullptr || std::string(wanted) == DeviceKindName(row.device_kind);
}

// WARPCALL_TEST_ELEMENTS_MAX leaves out larger cases, for runs under tools that slow them down.
bool IsSmallEnough(const Problem& problem) {
  const char* const text = std::getenv("WARPCALL_TEST_ELEMENTS_MAX");
  int64_t elements_max = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &elements_max)) return true;
  return absl::c_all_of(problem.inputs,
                        [&](const TensorSpec& spec) { return spec.elements() <= elements_max; });
}

const DeviceProperties& PropertiesFor(const Implementation& row) {
  return row.device_kind == DeviceKind::kCuda ? *TestGpuProperties() : TestDeviceProperties();
}

std::vector<Variant> VariantsOf(const Kernel& kernel) {
  const int64_t best = VectorTargets().front();
  std::vector<Variant> variants;
  for (int id : kernel.rows) {
    const Implementation& row = FullRegistry().rows()[id].implementation;
    if (!Runs(row)) continue;
    if (row.family != Family::kCpu) {
      variants.push_back({&row, best, row.name});
      continue;
    }
    for (int64_t target : VectorTargets()) {
      variants.push_back({&row, target, absl::StrCat(row.name, " on ", VectorTargetName(target))});
    }
  }
  return variants;
}

// One op in one data type.
struct Parameter {
  const Op* op;
  DataType data_type;
};

class ConformanceTest : public ::testing::TestWithParam<Parameter> {
 protected:
  const Op& op_ = *GetParam().op;
  const OpCases cases_ = op_.cases();

  void RunCase(const Case& test_case, std::vector<Variant>& variants) {
    SCOPED_TRACE(absl::StrCat("case ", test_case.name, ", seed ", RunSeed()));
    std::vector<TensorSpec> specs;
    for (const Dims& dims : test_case.shapes) specs.push_back({GetParam().data_type, dims});
    const absl::StatusOr<Problem> problem = MakeProblem(op_, specs, test_case.attributes);
    ASSERT_TRUE(problem.ok()) << problem.status();
    if (!IsSmallEnough(*problem)) return;
    std::vector<Memory> inputs;
    for (size_t i = 0; i < specs.size(); ++i) {
      inputs.push_back(FilledInput(
          specs[i], test_case.fill,
          absl::StrCat(op_.name, test_case.name, DataTypeName(GetParam().data_type), i)));
    }
    const uint8_t poison = test_case.fill == Fill::kSpecial ? kPoisonFinite : kPoisonNan;
    const Truth truth = TruthOf({op_, cases_, *problem, OperandsOf(inputs)}, TestPool());
    for (Variant& variant : variants) {
      const absl::Status supported = Supports(*variant.row, *problem);
      if (!supported.ok()) {
        ++variant.refused;
        variant.reason = std::string(supported.message());
        continue;
      }
      SCOPED_TRACE(absl::StrCat("row ", variant.name));
      ScopedVectorTarget target(variant.target);
      const auto actual = RunRow(*variant.row, *problem, inputs, poison);
      ASSERT_TRUE(actual.ok()) << actual.status();
      ++variant.ran;
      const Disagreement found = Compare(truth, (*actual)[0].data(), variant.allowance);
      EXPECT_EQ(found.wrong, 0) << "elements of " << truth.spec.elements() << ":\n" << found.text;
      variant.worst = std::max(variant.worst, found.worst);
    }
  }

  static absl::Status Supports(const Implementation& row, const Problem& problem) {
    if (!absl::c_linear_search(row.data_types, problem.inputs[0].data_type)) {
      return absl::UnimplementedError("data type is not in its list");
    }
    return row.supports(problem, PropertiesFor(row));
  }
};

TEST_P(ConformanceTest, EveryRowAgreesWithTheDefinition) {
  const auto kernel = FullRegistry().Find(op_.name);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  std::vector<Variant> variants = VariantsOf(**kernel);
  for (Variant& variant : variants)
    variant.allowance = AllowanceFor(cases_, variant.row->name, GetParam().data_type);
  for (const Case& test_case : cases_.cases) RunCase(test_case, variants);
  for (const Variant& variant : variants) {
    std::printf("  %-40s %4d cases, at worst %.2f of the bound, %d refused%s%s\n",
                variant.name.c_str(), variant.ran, variant.worst, variant.refused,
                variant.refused > 0 ? ": " : "", variant.reason.c_str());
    // What a vendor's library takes of 16 bits depends on the CPU; everything else is up to us.
    const bool excused =
        variant.row->family == Family::kLibrary && GetParam().data_type != DataType::kFloat32;
    const bool listed = absl::c_linear_search(variant.row->data_types, GetParam().data_type);
    EXPECT_TRUE(variant.ran > 0 || excused || !listed)
        << variant.name << " took no case: " << variant.reason;
  }
}

std::vector<Parameter> AllParameters() {
  std::vector<Parameter> parameters;
  for (const Kernel& kernel : FullRegistry().kernels()) {
    for (DataType type : kDataTypes) parameters.push_back({kernel.op, type});
  }
  return parameters;
}

INSTANTIATE_TEST_SUITE_P(Catalog, ConformanceTest, ::testing::ValuesIn(AllParameters()),
                         [](const auto& param_info) {
                           return absl::StrCat(param_info.param.op->name, "_",
                                               DataTypeName(param_info.param.data_type));
                         });

TEST(ConformanceCoverage, EveryKernelHasCases) {
  for (const Kernel& kernel : FullRegistry().kernels()) {
    ASSERT_NE(kernel.op->cases, nullptr) << kernel.op->name;
    EXPECT_FALSE(kernel.op->cases().cases.empty()) << kernel.op->name;
  }
}

}  // namespace
}  // namespace warpcall::testing
