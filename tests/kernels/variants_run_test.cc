// Every variant of every row is made to run, on problems around the sizes at which it begins and
// ends to be right for them, and meets the op's definition within the op's bounds. A variant that
// took no problem fails the test: nothing that is compiled goes unseen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
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
#include "kernels/softmax/softmax.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_problems.h"
#include "tests/kernels/variant_rows.h"
#include "tests/kernels/vector_targets.h"

namespace warpcall::testing {
namespace {

using ::testing::IsEmpty;

constexpr uint8_t kPoisonNan = 0xFF;

// A variant of softmax takes all rows up to its longest: these are enough to show its ends.
// Problems that the row would choose it for always run.
constexpr int kSoftmaxRunsMax = 16;

// A row in one data type, and the instruction set to run it with.
struct Tally {
  VariantRow row;
  int64_t target;
  std::string name;
  std::vector<std::string> variants;
  Allowance allowance;
  std::vector<int> ran = {};  // problems, by variant
  double worst = 0;           // error, in units of its bound

  // Includes problems that the row itself would leave to others.
  bool AnyTakes(const VariantProblem& problem) const {
    const ScopedVectorTarget chosen(target);
    for (size_t v = 0; v < variants.size(); ++v)
      if (row.Takes(problem.problem, static_cast<int>(v)).ok()) return true;
    return false;
  }

  std::vector<std::string> Unreached() const {
    std::vector<std::string> names;
    for (size_t v = 0; v < variants.size(); ++v)
      if (ran[v] == 0) names.push_back(variants[v]);
    return names;
  }
};

std::vector<Tally> TalliesFor(const Op& op, DataType type) {
  std::vector<Tally> tallies;
  for (const VariantRow& row : RowsWithVariants()) {
    if (row.kernel->op != &op || row.type != type || !RunsHere(*row.row)) continue;
    const bool is_vectorised = row.row->family == Family::kCpu;
    for (const int64_t target : VectorTargets()) {
      const ScopedVectorTarget chosen(target);  // some have variants of their own
      const std::string on = is_vectorised ? absl::StrCat(" on ", VectorTargetName(target)) : "";
      tallies.push_back({.row = row,
                         .target = target,
                         .name = row.Name() + on,
                         .variants = row.Names(),
                         .allowance = AllowanceFor(op.cases(), row.row->name, type)});
      tallies.back().ran.resize(tallies.back().variants.size());
      if (!is_vectorised) break;
    }
  }
  return tallies;
}

// softmax: one element of each row outweighs its neighbours by far; in the first rows the last, the
// first and those beside the ends of blocks' steps. It is 1 / 5000 of a row of a million: a variant
// that loses it is hundreds of bounds off.
void AddSpikes(const Problem& problem, const Memory& input) {
  constexpr float kSpike = 6;
  const softmax::View view = softmax::ViewOf(problem);
  const int64_t columns[] = {view.n - 1, 0, view.n / 2, 16383, 16384, view.n - 2, 4095, 4096};
  for (int64_t row = 0; row < view.outer; ++row) {
    const auto i = static_cast<size_t>(row);
    const int64_t column = i < std::size(columns) ? columns[i] : row * 7919;
    for (int64_t inner = 0; inner < view.inner; ++inner)
      SetValue(input.data(), problem.inputs[0].data_type,
               (row * view.n + (column + inner) % view.n) * view.inner + inner, kSpike);
  }
}

std::vector<Memory> InputsFor(const VariantProblem& problem) {
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : problem.problem.inputs)
    inputs.push_back(FilledInput(spec, Fill::kNormal, absl::StrCat(problem.name, inputs.size())));
  return inputs;
}

class VariantsRunTest : public ::testing::TestWithParam<CatalogEntry> {
 protected:
  const Op& op_ = *GetParam().op;
  const OpCases cases_ = op_.cases();

  // Runs the variants that take it, of each row.
  void RunProblem(const VariantProblem& problem, std::vector<Tally>& tallies) const {
    SCOPED_TRACE(absl::StrCat(problem.name, ", seed ", RunSeed()));
    if (absl::c_none_of(tallies, [&](const Tally& tally) { return tally.AnyTakes(problem); }))
      return;
    const std::vector<Memory> inputs = InputsFor(problem);
    if (&op_ == &SoftmaxOp()) AddSpikes(problem.problem, inputs[0]);
    const Truth truth = TruthOf({op_, cases_, problem.problem, OperandsOf(inputs)}, TruthPool());
    for (Tally& tally : tallies) {
      const ScopedVectorTarget target(tally.target);
      const Implementation& row = *tally.row.row;
      const DeviceProperties& device = tally.row.Device();
      const bool supported = row.supports(problem.problem, device).ok();
      const int chosen = supported ? tally.row.Chosen(problem.problem) : kRowsChoice;
      for (int v = 0; v < static_cast<int>(tally.variants.size()); ++v) {
        const bool enough = &op_ == &SoftmaxOp() && tally.ran[v] >= kSoftmaxRunsMax;
        if (enough && v != chosen) continue;
        if (!tally.row.Takes(problem.problem, v).ok()) continue;
        SCOPED_TRACE(absl::StrCat(tally.name, ", variant \"", tally.variants[v], "\"",
                                  v == chosen ? ", which it chooses" : ""));
        const auto outputs = RunRow({row, v}, problem.problem, inputs, kPoisonNan);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        const Disagreement found = Compare(truth, (*outputs)[0].data(), tally.allowance);
        EXPECT_EQ(found.wrong, 0) << "elements of " << truth.spec.elements() << ":\n" << found.text;
        ++tally.ran[v];
        tally.worst = std::max(tally.worst, found.worst);
      }
    }
  }
};

TEST_P(VariantsRunTest, EveryVariantMeetsTheDefinition) {
  std::vector<Tally> tallies = TalliesFor(op_, GetParam().data_type);
  if (tallies.empty()) GTEST_SKIP() << "no row of " << op_.name << " has variants here";
  for (const VariantProblem& problem : VariantProblems(op_, GetParam().data_type)) {
    if (!IsSmallEnough(problem.problem)) continue;
    RunProblem(problem, tallies);
    // A wrong variant would fail on every later problem.
    if (HasFailure()) break;
  }
  for (const Tally& tally : tallies) {
    const std::vector<std::string> unreached = tally.Unreached();
    int launches = 0;
    for (const int ran : tally.ran) launches += ran;
    std::printf("  %-44s %2zu of %2zu variants ran, %5d launches, at worst %.2f of the bound\n",
                tally.name.c_str(), tally.variants.size() - unreached.size(), tally.variants.size(),
                launches, tally.worst);
    if (TestElementsMax() == 0) {
      EXPECT_THAT(unreached, IsEmpty()) << tally.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, VariantsRunTest, ::testing::ValuesIn(Catalog()), CatalogName);

// A row need not use the freedom that precision=tf32 gives: the figures show which rows do.
class Tf32Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TestElementsMax() > 0) GTEST_SKIP() << "too large to run under a tool";
  }
  void TearDown() override {
    for (const auto& [name, error] : worst_)
      std::printf("  matmul %-20s tf32: at worst %.4f of the bound\n", name.c_str(), error);
  }

  // Every row that takes it.
  void ExpectWithinBounds(const VariantProblem& problem, const std::vector<Memory>& inputs) {
    SCOPED_TRACE(absl::StrCat(problem.name, ", seed ", RunSeed()));
    const auto kernel = FullRegistry().Find("matmul");
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const Truth truth =
        TruthOf({MatmulOp(), cases_, problem.problem, OperandsOf(inputs)}, TruthPool());
    for (const int id : (*kernel)->rows) {
      const Implementation& row = FullRegistry().rows()[id].implementation;
      const DeviceProperties* const device =
          row.device_kind == DeviceKind::kCpu ? &TestDeviceProperties() : TestGpuProperties();
      if (!RunsHere(row) || !absl::c_linear_search(row.data_types, DataType::kFloat32)) continue;
      if (!row.supports(problem.problem, *device).ok()) continue;
      ExpectWithinBounds(row, problem.problem, inputs, truth);
    }
  }

 private:
  // Runs the row's choice, and each variant that takes the problem.
  void ExpectWithinBounds(const Implementation& row, const Problem& problem,
                          const std::vector<Memory>& inputs, const Truth& truth) {
    SCOPED_TRACE(row.name);
    const std::vector<std::string> names = row.variant_names == nullptr
                                               ? std::vector<std::string>{}
                                               : row.variant_names(DataType::kFloat32);
    const Allowance allowance = AllowanceFor(cases_, row.name, DataType::kFloat32);
    for (int v = kRowsChoice; v < static_cast<int>(names.size()); ++v) {
      SCOPED_TRACE(v == kRowsChoice ? "its choice" : names[static_cast<size_t>(v)]);
      const auto outputs = RunRow({row, v}, problem, inputs, kPoisonNan);
      if (v != kRowsChoice && absl::IsInvalidArgument(outputs.status())) continue;
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const Disagreement found = Compare(truth, (*outputs)[0].data(), allowance);
      EXPECT_EQ(found.wrong, 0) << found.text;
      worst_[row.name] = std::max(worst_[row.name], found.worst);
    }
  }

  const OpCases cases_ = MatmulOp().cases();
  std::map<std::string, double> worst_;
};

TEST_F(Tf32Test, EveryRowMeetsItsBounds) {
  for (const VariantProblem& problem : Tf32Problems())
    ExpectWithinBounds(problem, InputsFor(problem));
}

// Nothing cancels, and each operand, slightly above 1, ends in
// thirteen ones: a row that truncates loses close to 2^-10 of it,
// 2^-9 of the product, and the truncation of its sums comes on top.
TEST_F(Tf32Test, EveryRowMeetsItsBoundsWhereOperandsLoseMost) {
  std::mt19937_64 random(RunSeed());
  for (const VariantProblem& problem : LongTf32Problems()) {
    std::vector<Memory> inputs = InputsFor(problem);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorSpec& spec = problem.problem.inputs[i];
      for (int64_t at = 0; at < spec.elements(); ++at) {
        const auto last_bits = static_cast<float>(random() % 8);
        SetValue(inputs[i].data(), spec.data_type, at,
                 1 + last_bits * 0x1p-10f + (0x1p-10f - 0x1p-23f));
      }
    }
    ExpectWithinBounds(problem, inputs);
  }
}

// Tiled matmul on GPUs at the sizes that it is for: many more tiles than run at once, every tile,
// layout and loader, whole and cut. Rows of the output that lie at the edges of tiles, and the last
// ones, meet the definition in all their columns.

struct Size {
  int64_t m;
  int64_t k;
  int64_t n;
};
// Sizes in whole vectors of any type, or in none; twice as many of the largest tiles as
// multiprocessors, the last of them in part empty.
constexpr Size kAligned{2184, 1032, 4360};
constexpr Size kOdd{2183, 1031, 4357};
// Size for the rows' own choices, which share their last tiles on 132 multiprocessors.
constexpr Size kLarge{4104, 5128, 4360};

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
