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

struct Size {
  int64_t m;
  int64_t k;
  int64_t n;
};
// Sizes in whole vectors of any type, or in none; twice as many of the largest tiles as
// multiprocessors, the last of them in part empty.
constexpr Size kAligned{2184, 1032, 4360};
constexpr Size kOdd{2183, 1031, 4357};
// Size for the rows' own choices.
constexpr Size kLarge{4104, 4104, 4360};

VariantProblem Product(const Size& size, DataType type, bool transpose_a, bool transpose_b) {
  const Dims a = transpose_a ? Dims{size.k, size.m} : Dims{size.m, size.k};
  const Dims b = transpose_b ? Dims{size.n, size.k} : Dims{size.k, size.n};
  return NameProblem(MatmulOp(), {{type, a}, {type, b}},
                     {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

// Whole rows of the output, one after the other, and their expected values.
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
  Sample sample{.rows = {0, 63, 64, 127, 128, 255, 256, 1023, 1024, m - 9, m - 8, m - 1},
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

// The first elements of `pool` as a tensor: drawing each anew would take longer than all else.
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

  struct Run {
    const VariantProblem& problem;
    absl::Span<const Memory> inputs;
    const Sample& sample;
    int variant;
  };

  void RunVariant(const Run& run, Reached& reached) {
    const Implementation& row = *reached.row.row;
    const bool is_choice = run.variant == kRowsChoice;
    if (!is_choice && !reached.row.Takes(run.problem.problem, run.variant).ok()) return;
    SCOPED_TRACE(absl::StrCat(reached.row.Name(), ", ",
                              is_choice ? "its own choice" : reached.row.Names()[run.variant]));
    const auto outputs = RunRow({row, run.variant}, run.problem.problem, run.inputs, 0xFF);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Disagreement found = Compare(run.sample.truth, run.sample.Of((*outputs)[0]).data(),
                                       AllowanceFor(cases_, row.name, GetParam()));
    ASSERT_EQ(found.wrong, 0) << "elements of rows " << absl::StrJoin(run.sample.rows, ", ")
                              << " of " << run.sample.columns << " columns, one after the other:\n"
                              << found.text;
    if (!is_choice) reached.variants.insert(run.variant);
  }

  // Runs every variant that takes it, or each row's choice.
  void RunProblem(const VariantProblem& problem, bool choices) {
    SCOPED_TRACE(absl::StrCat(problem.name, ", seed ", RunSeed()));
    std::vector<Memory> inputs;
    for (size_t i = 0; i < pools_.size(); ++i)
      inputs.push_back(Cut(pools_[i], problem.problem.inputs[i]));
    const Sample sample = SampleOf({MatmulOp(), cases_, problem.problem, OperandsOf(inputs)});
    for (Reached& reached : reached_) {
      const int count = static_cast<int>(reached.row.Names().size());
      for (int v = choices ? kRowsChoice : 0; v < (choices ? 0 : count); ++v) {
        RunVariant({problem, inputs, sample, v}, reached);
        if (HasFatalFailure()) return;
      }
    }
  }

  const OpCases cases_ = MatmulOp().cases();
  std::vector<Reached> reached_;
  std::vector<Memory> pools_;  // each input is cut from its pool
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
  for (const int64_t elements : {kLarge.m * kLarge.k, kLarge.k * kLarge.n})
    pools_.push_back(FilledInput({GetParam(), {elements}}, Fill::kNormal,
                                 absl::StrCat("large", DataTypeName(GetParam()), elements)));
  for (const bool transpose_a : {false, true}) {
    RunProblem(Product(kLarge, GetParam(), transpose_a, transpose_a), /*choices=*/true);
    for (const bool transpose_b : {false, true})
      for (const Size& size : {kAligned, kOdd})
        RunProblem(Product(size, GetParam(), transpose_a, transpose_b), /*choices=*/false);
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
