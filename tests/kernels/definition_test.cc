// Each op's definition in float64, on random problems of its own cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/common/round.h"
#include "proto/common/dispatch.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kElementsMax = 200'000;
constexpr int64_t kFlopsPerElementMax = 100;

struct Prepared {
  Problem problem;
  std::vector<Memory> inputs;
};

// The cases of an op that are small enough to evaluate here, in `data_type`.
std::vector<Prepared> PreparedCases(const Op& op, DataType data_type) {
  const int64_t elements_max = TestElementsMax() > 0 ? TestElementsMax() : kElementsMax;
  std::vector<Prepared> prepared;
  const OpCases cases = op.cases();
  for (const Case& test_case : cases.cases) {
    if (!test_case.IsFor(data_type)) continue;
    std::vector<TensorSpec> specs;
    for (const Dims& dims : test_case.shapes) specs.push_back({data_type, dims});
    absl::StatusOr<Problem> problem = MakeProblem(op, specs, test_case.attributes);
    if (!problem.ok()) continue;
    if (problem->outputs[0].elements() > elements_max ||
        op.work(*problem).flops > elements_max * kFlopsPerElementMax)
      continue;
    Prepared& added = prepared.emplace_back();
    added.problem = *std::move(problem);
    for (size_t i = 0; i < specs.size(); ++i)
      added.inputs.push_back(FilledInput(
          specs[i], test_case.FillOf(i),
          absl::StrCat(op.name, test_case.name, DataTypeName(data_type), i, "definition")));
  }
  return prepared;
}

std::string Describe(const Op& op, const Problem& problem) {
  std::string text = absl::StrCat(op.name, ", seed ", RunSeed());
  for (const TensorSpec& spec : problem.inputs) absl::StrAppend(&text, " ", ToString(spec));
  return text;
}

class DefinitionTest : public ::testing::TestWithParam<CatalogEntry> {
 protected:
  const Op& op_ = *GetParam().op;
};

TEST_P(DefinitionTest, SlicesCoverEachOutputElementOnce) {
  const std::vector<Prepared> prepared = PreparedCases(op_, GetParam().data_type);
  ASSERT_FALSE(prepared.empty());
  for (const Prepared& one : prepared) {
    SCOPED_TRACE(Describe(op_, one.problem));
    const int64_t elements = one.problem.outputs[0].elements();
    std::vector<int> covered(static_cast<size_t>(elements));
    const int64_t slices = op_.definition->slices(one.problem);
    EXPECT_EQ(slices == 0, elements == 0);
    for (int64_t index = 0; index < slices; ++index) {
      const Slice slice = op_.definition->slice(one.problem, index);
      ASSERT_GT(slice.count, 0);
      ASSERT_GE(slice.first, 0);
      ASSERT_LT(slice.first + (slice.count - 1) * slice.stride, elements);
      for (int64_t i = 0; i < slice.count; ++i) ++covered[slice.first + i * slice.stride];
    }
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), elements);
  }
}

// Whatever the order in which slices are asked for: they share nothing.
TEST_P(DefinitionTest, ValuesRoundedAreTheReferenceRows) {
  const Implementation& reference = ReferenceOf(**FullRegistry().Find(op_.name));
  std::mt19937_64 random(RunSeed());
  for (const Prepared& one : PreparedCases(op_, GetParam().data_type)) {
    SCOPED_TRACE(Describe(op_, one.problem));
    const auto expected = RunRow(reference, one.problem, one.inputs, 0xFF);
    ASSERT_TRUE(expected.ok()) << expected.status();
    Memory actual(one.problem.outputs[0].bytes());
    std::vector<int64_t> order(static_cast<size_t>(op_.definition->slices(one.problem)));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    std::shuffle(order.begin(), order.end(), random);
    DispatchDataType(GetParam().data_type, [&]<typename T>(T) {
      for (const int64_t index : order) {
        const Slice slice = op_.definition->slice(one.problem, index);
        int64_t count = 0;
        op_.definition->evaluate(one.problem, OperandsOf(one.inputs), index,
                                 [&](absl::Span<const double> values) {
                                   for (const double value : values) {
                                     const int64_t at = slice.first + count++ * slice.stride;
                                     static_cast<T*>(actual.data())[at] = FromDouble<T>(value);
                                   }
                                 });
        ASSERT_EQ(count, slice.count) << "slice " << index;
      }
      // Compares bits, except for NaN, whose payload the definition does not promise.
      const T* const a = static_cast<const T*>(actual.data());
      const T* const e = static_cast<const T*>((*expected)[0].data());
      for (int64_t i = 0, n = one.problem.outputs[0].elements(); i < n; ++i) {
        const bool both_nan = ToFloat(a[i]) != ToFloat(a[i]) && ToFloat(e[i]) != ToFloat(e[i]);
        ASSERT_TRUE(both_nan || std::memcmp(a + i, e + i, sizeof(T)) == 0)
            << "element " << i << ": " << ToFloat(a[i]) << ", the row has " << ToFloat(e[i]);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, DefinitionTest, ::testing::ValuesIn(Catalog()), CatalogName);

TEST(DefinitionCoverage, EveryKernelOfTheCatalogHasOne) {
  for (const Kernel& kernel : FullRegistry().kernels())
    EXPECT_NE(kernel.op->definition, nullptr) << kernel.op->name;
}

}  // namespace
}  // namespace warpcall::testing
