// Tiled matmul on GPUs at the sizes that it is for: many more tiles than run at once, every tile,
// layout and loader, whole and cut. Rows of the output that lie at the edges of tiles, and the last
// ones, meet the definition in all their columns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check/compare.h"
#include "kernels/matmul/matmul.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_problems.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

using ::testing::IsEmpty;

// In whole vectors of any type, or in none; a tile more than 16 of 256 each way, a part of it
// empty.
struct Size {
  int64_t m;
  int64_t k;
  int64_t n;
};
constexpr Size kAligned{4104, 2056, 4360};
constexpr Size kOdd{4103, 2051, 4357};

VariantProblem Product(const Size& size, DataType type, bool transpose_a, bool transpose_b) {
  const Dims a = transpose_a ? Dims{size.k, size.m} : Dims{size.m, size.k};
  const Dims b = transpose_b ? Dims{size.n, size.k} : Dims{size.k, size.n};
  return NameProblem(MatmulOp(), {{type, a}, {type, b}},
                     {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

// Rows of the output, whole, one after the other, and what they should be.
struct Sample {
  std::vector<int64_t> rows;
  int64_t columns;
  Truth truth;

  Memory Of(const Memory& output) const {
    const size_t row_bytes = static_cast<size_t>(columns) * ElementBytes(truth.spec.data_type);
    Memory gathered(row_bytes * rows.size());
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(
          static_cast<char*>(gathered.data()) + i * row_bytes,
          static_cast<const char*>(output.data()) + static_cast<size_t>(rows[i]) * row_bytes,
          row_bytes);
    return gathered;
  }
};

// Writes a row of the output at `at`. Sums so long make a slice of the definition of each row.
void FillRow(const TruthSource& source, int64_t row, int64_t at, Truth* truth) {
  const auto values = truth->values.begin() + at;
  auto out = values;
  source.op.definition->evaluate(
      source.problem, source.inputs, row,
      [&](absl::Span<const double> more) { out = absl::c_copy(more, out); });
  const std::vector<ElementError> errors = source.cases.errors(
      source.problem, source.inputs, row, absl::MakeSpan(&*values, out - values));
  absl::c_copy(errors, truth->errors.begin() + at);
}

Sample SampleOf(const TruthSource& source) {
  const int64_t m = source.problem.outputs[0].dims[0];
  const int64_t n = source.problem.outputs[0].dims[1];
  Sample sample{.rows = {0, 63, 64, 127, 128, 255, 256, 1023, 2048, m - 9, m - 8, m - 1},
                .columns = n,
                .truth = {}};
  const size_t elements = sample.rows.size() * static_cast<size_t>(n);
  sample.truth.spec = {source.problem.outputs[0].data_type, {static_cast<int64_t>(elements)}};
  sample.truth.values.resize(elements);
  sample.truth.errors.resize(elements);
  TruthPool().ParallelFor(static_cast<int64_t>(sample.rows.size()), 1,
                          [&](int64_t begin, int64_t end) {
                            for (int64_t i = begin; i < end; ++i)
                              FillRow(source, sample.rows[i], i * n, &sample.truth);
                          });
  return sample;
}

// The first elements of `pool` as a tensor: to draw each anew would take longer than all else.
Memory Cut(const Memory& pool, const TensorSpec& spec) {
  Memory memory(spec.bytes());
  std::memcpy(memory.data(), pool.data(), spec.bytes());
  return memory;
}

class VariantsLargeTest : public ::testing::TestWithParam<DataType> {
 protected:
  struct Reached {
    VariantRow row;
    std::set<int> variants;
  };

  void RunProblem(const VariantProblem& problem, absl::Span<const Memory> pools) {
    SCOPED_TRACE(absl::StrCat(problem.name, ", seed ", RunSeed()));
    std::vector<Memory> inputs;
    for (size_t i = 0; i < pools.size(); ++i)
      inputs.push_back(Cut(pools[i], problem.problem.inputs[i]));
    const Sample sample = SampleOf({MatmulOp(), cases_, problem.problem, OperandsOf(inputs)});
    for (Reached& reached : reached_) {
      const std::vector<std::string> names = reached.row.Names();
      for (int v = kRowsChoice; v < static_cast<int>(names.size()); ++v) {
        const Variants& variants = *reached.row.row->variants;
        const bool is_choice = v == kRowsChoice;
        if (!is_choice && !variants.takes(problem.problem, reached.row.Device(), v).ok()) continue;
        SCOPED_TRACE(absl::StrCat(reached.row.Name(), ", ",
                                  is_choice ? "its own choice" : "variant " + names[v]));
        const auto outputs = RunRow({*reached.row.row, v}, problem.problem, inputs, 0xFF);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        const Disagreement found = Compare(sample.truth, sample.Of((*outputs)[0]).data(),
                                           AllowanceFor(cases_, reached.row.row->name, GetParam()));
        ASSERT_EQ(found.wrong, 0) << "elements of rows " << absl::StrJoin(sample.rows, ", ")
                                  << " of " << sample.columns << " columns, one after the other:\n"
                                  << found.text;
        if (!is_choice) reached.variants.insert(v);
      }
    }
  }

  const OpCases cases_ = MatmulOp().cases();
  std::vector<Reached> reached_;
};

TEST_P(VariantsLargeTest, EveryTileMeetsTheDefinitionInRowsAtItsEdges) {
  for (const VariantRow& row : RowsWithVariants()) {
    const bool is_tiled = row.kernel->op == &MatmulOp() && absl::EndsWith(row.row->name, "_tiled");
    if (row.row->device_kind == DeviceKind::kCuda && row.type == GetParam() && is_tiled &&
        RunsHere(*row.row))
      reached_.push_back({row, {}});
  }
  if (reached_.empty()) GTEST_SKIP() << "no GPU";
  if (TestElementsMax() > 0) GTEST_SKIP() << "WARPCALL_TEST_ELEMENTS_MAX is set";
  std::vector<Memory> pools;
  for (const int64_t elements : {kAligned.m * kAligned.k, kAligned.k * kAligned.n})
    pools.push_back(FilledInput({GetParam(), {elements}}, Fill::kNormal,
                                absl::StrCat("large", DataTypeName(GetParam()), elements)));
  for (const Size& size : {kAligned, kOdd})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        RunProblem(Product(size, GetParam(), transpose_a, transpose_b), pools);
        if (HasFatalFailure()) return;
      }
  for (const Reached& reached : reached_) {
    const std::vector<std::string> names = reached.row.Names();
    std::printf("  %-44s %2zu of %2zu variants ran\n", reached.row.Name().c_str(),
                reached.variants.size(), names.size());
    std::vector<std::string> unreached;
    for (size_t v = 0; v < names.size(); ++v)
      if (!reached.variants.contains(static_cast<int>(v))) unreached.push_back(names[v]);
    EXPECT_THAT(unreached, IsEmpty()) << reached.row.Name();
  }
}

INSTANTIATE_TEST_SUITE_P(Types, VariantsLargeTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& param_info) { return DataTypeName(param_info.param); });

}  // namespace
}  // namespace warpcall::testing
