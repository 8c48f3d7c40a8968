#include "tests/kernels/rows.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/check/compare.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"
#include "tests/kernels/vector_targets.h"

namespace warpcall::testing {

std::vector<CatalogEntry> Catalog() {
  std::vector<CatalogEntry> catalog;
  for (const Kernel& kernel : FullRegistry().kernels())
    for (const DataType type : kDataTypes) catalog.push_back({kernel.op, type});
  return catalog;
}

std::string CatalogName(const ::testing::TestParamInfo<CatalogEntry>& info) {
  return absl::StrCat(info.param.op->name, "_", DataTypeName(info.param.data_type));
}

std::vector<TestedRow> TestedRows(const Op& op) {
  const auto kernel = FullRegistry().Find(op.name);
  std::vector<TestedRow> tested;
  if (!kernel.ok()) return tested;
  const int64_t best = VectorTargets().front();
  for (int id : (*kernel)->rows) {
    const Implementation& row = FullRegistry().rows()[id].implementation;
    if (!RunsHere(row)) continue;
    if (row.family != Family::kCpu) {
      tested.push_back({&row, best, row.name});
      continue;
    }
    for (int64_t target : VectorTargets())
      tested.push_back({&row, target, absl::StrCat(row.name, " on ", VectorTargetName(target))});
  }
  return tested;
}

absl::Status Supports(const TestedRow& tested, const Problem& problem) {
  const Implementation& row = *tested.row;
  if (!absl::c_linear_search(row.data_types, problem.inputs[0].data_type))
    return absl::UnimplementedError("data type is not in its list");
  return row.supports(problem, row.device_kind == DeviceKind::kCuda ? *TestGpuProperties()
                                                                    : TestDeviceProperties());
}

absl::StatusOr<std::vector<Memory>> RunTested(const TestedRow& tested, const Problem& problem,
                                              absl::Span<const Memory> inputs, uint8_t poison) {
  const ScopedVectorTarget target(tested.target);
  return RunRow(*tested.row, problem, inputs, poison);
}

Truth TruthFor(const Op& op, const Problem& problem, absl::Span<const Memory> inputs) {
  return TruthOf({op, op.cases(), problem, OperandsOf(inputs)}, TruthPool());
}

Truth ExactTruthFor(const Op& op, const Problem& problem, absl::Span<const Memory> inputs) {
  OpCases cases{};
  cases.errors = [](const Problem&, const Operands&, int64_t, absl::Span<const double> truth) {
    return std::vector<ElementError>(truth.size());
  };
  return TruthOf({op, cases, problem, OperandsOf(inputs)}, TruthPool());
}

void ExpectTruth(const Op& op, const Problem& problem, absl::Span<const Memory> inputs,
                 const Truth& truth) {
  constexpr uint8_t kPoison = 0x42;  // finite, and no sum of small integers
  const OpCases cases = op.cases();
  for (const TestedRow& row : TestedRows(op)) {
    if (!Supports(row, problem).ok()) continue;
    SCOPED_TRACE(absl::StrCat(row.name, ": ", ToString(problem.inputs[0]), ", seed ", RunSeed()));
    const auto outputs = RunTested(row, problem, inputs, kPoison);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Allowance allowance = AllowanceFor(cases, row.row->name, problem.inputs[0].data_type);
    const Disagreement found = Compare(truth, (*outputs)[0].data(), allowance);
    ASSERT_EQ(found.wrong, 0) << "elements of " << truth.spec.elements() << ":\n" << found.text;
  }
}

bool IsSmallEnough(const Problem& problem) {
  const int64_t elements_max = TestElementsMax();
  return elements_max == 0 || absl::c_all_of(problem.inputs, [&](const TensorSpec& spec) {
           return spec.elements() <= elements_max;
         });
}

}  // namespace warpcall::testing
