// Each op's definition in float64, on random problems of its own cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/common/round.h"
#include "proto/common/dispatch.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kElementsMax = 20'000;
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

// The definitions against formulas written a second time, here, in long double, element by element
// from the indices: the measure of everything else must not be measured by itself.

using Indices = std::vector<int64_t>;

Indices IndicesOf(int64_t element, const Dims& dims) {
  Indices indices(dims.size());
  for (size_t d = dims.size(); d-- > 0; element /= dims[d]) indices[d] = element % dims[d];
  return indices;
}

// Element `indices` of a tensor; dimensions of size 1 are the same for every index, and leading
// ones may be missing: NumPy's broadcasting.
long double At(const Memory& data, const TensorSpec& spec, const Indices& indices) {
  const size_t lacking = indices.size() - spec.dims.size();
  int64_t element = 0;
  for (size_t d = 0; d < spec.dims.size(); ++d)
    element = element * spec.dims[d] + (spec.dims[d] == 1 ? 0 : indices[lacking + d]);
  return ValueAt(data.data(), spec.data_type, element);
}

struct Instance {
  Problem problem;
  std::vector<Memory> inputs;
};

long double Gelu(const Instance& instance, const Indices& at) {
  const long double x = At(instance.inputs[0], instance.problem.inputs[0], at);
  if (std::get<std::string>(instance.problem.attributes[0]) == "none")
    return x * std::erfc(-x / std::sqrt(2.0L)) / 2;
  // (1 + tanh(a)) / 2 = 1 / (1 + exp(-2 a))
  const long double a = std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x);
  return x / (1 + std::exp(-2 * a));
}

long double Softmax(const Instance& instance, const Indices& at) {
  const TensorSpec& spec = instance.problem.inputs[0];
  const int64_t axis = std::get<int64_t>(instance.problem.attributes[0]);
  const size_t d =
      static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(spec.dims.size()) : axis);
  const long double x = At(instance.inputs[0], spec, at);
  long double sum = 0;  // sums exp(other - x): 1 / softmax
  Indices other = at;
  for (other[d] = 0; other[d] < spec.dims[d]; ++other[d])
    sum += std::exp(At(instance.inputs[0], spec, other) - x);
  return 1 / sum;
}

long double Norm(const Instance& instance, const Indices& at) {
  const TensorSpec& spec = instance.problem.inputs[0];
  const Indices column = {at.back()};
  const auto n = static_cast<long double>(spec.dims.back());
  const auto mean_of = [&](auto&& term) {
    long double sum = 0;
    Indices other = at;
    for (other.back() = 0; other.back() < spec.dims.back(); ++other.back())
      sum += term(At(instance.inputs[0], spec, other));
    return sum / n;
  };
  const bool centered = instance.inputs.size() == 3;
  const long double mean = centered ? mean_of([](long double x) { return x; }) : 0;
  const long double square = mean_of([&](long double x) { return (x - mean) * (x - mean); });
  const auto epsilon = static_cast<long double>(std::get<double>(instance.problem.attributes[0]));
  const long double y = (At(instance.inputs[0], spec, at) - mean) / std::sqrt(square + epsilon) *
                        At(instance.inputs[1], instance.problem.inputs[1], column);
  return centered ? y + At(instance.inputs[2], instance.problem.inputs[2], column) : y;
}

long double Linear(const Instance& instance, const Indices& at) {
  const Problem& problem = instance.problem;
  long double sum = At(instance.inputs[2], problem.inputs[2], {at.back()});
  Indices of_x = at;
  for (of_x.back() = 0; of_x.back() < problem.inputs[0].dims.back(); ++of_x.back())
    sum += At(instance.inputs[0], problem.inputs[0], of_x) *
           At(instance.inputs[1], problem.inputs[1], {at.back(), of_x.back()});
  const std::string& activation = std::get<std::string>(problem.attributes[0]);
  if (activation == "relu") return std::max(sum, 0.0L);
  if (activation == "gelu_erf") return sum * std::erfc(-sum / std::sqrt(2.0L)) / 2;
  if (activation == "none") return sum;
  const long double a = std::sqrt(2 / std::acos(-1.0L)) * (sum + 0.044715L * sum * sum * sum);
  return sum / (1 + std::exp(-2 * a));
}

long double Matmul(const Instance& instance, const Indices& at) {
  const Problem& problem = instance.problem;
  const bool transpose_a = std::get<bool>(problem.attributes[0]);
  const bool transpose_b = std::get<bool>(problem.attributes[1]);
  const size_t rank = at.size();
  const Dims& a = problem.inputs[0].dims;
  const int64_t depth = a[a.size() - (transpose_a ? 2 : 1)];
  long double sum = 0;
  for (int64_t k = 0; k < depth; ++k) {
    Indices of_a = at, of_b = at;
    of_a[rank - 1] = k;
    of_b[rank - 2] = k;
    if (transpose_a) std::swap(of_a[rank - 1], of_a[rank - 2]);
    if (transpose_b) std::swap(of_b[rank - 1], of_b[rank - 2]);
    sum += At(instance.inputs[0], problem.inputs[0], of_a) *
           At(instance.inputs[1], problem.inputs[1], of_b);
  }
  return sum;
}

long double Identity(const Instance& instance, const Indices& at) {
  return At(instance.inputs[0], instance.problem.inputs[0], at);
}

// fused: what its expression says is fused_test's; here, where each operand's element is.
long double Affine(const Instance& instance, const Indices& at) {
  const auto x = [&](size_t i) { return At(instance.inputs[i], instance.problem.inputs[i], at); };
  return x(0) * x(1) + x(2);
}

struct Example {
  const char* kernel;
  std::vector<Dims> shapes;
  std::vector<NamedAttribute> attributes;
  long double (*formula)(const Instance& instance, const Indices& at);
  Fill fill = Fill::kNormal;
};

std::vector<Example> Examples() {
  const std::string tanh_form = "gelu", erf_form = "gelu_erf", relu = "relu";
  const std::string tanh = "tanh", none = "none", affine = "x0 * x1 + x2";
  std::vector<Example> examples = {
      {"identity", {{3, 5}}, {}, Identity},
      {"gelu", {{7, 11}}, {{"approximate", tanh}}, Gelu},
      {"gelu", {{77}}, {{"approximate", none}}, Gelu},
      {"gelu", {{7, 11}}, {{"approximate", tanh}}, Gelu, Fill::kBroad},
      {"gelu", {{77}}, {{"approximate", none}}, Gelu, Fill::kBroad},
      {"softmax", {{5, 17}}, {{"axis", int64_t{-1}}}, Softmax},
      {"softmax", {{5, 17}}, {{"axis", int64_t{0}}}, Softmax},
      {"softmax", {{2, 3, 4, 5}}, {{"axis", int64_t{2}}}, Softmax},
      {"softmax", {{1, 1031}}, {{"axis", int64_t{-1}}}, Softmax},
      {"fused", {{3, 1, 7}, {5, 1}, {7}}, {{"expression", affine}}, Affine},
      {"fused", {{1}, {2, 1, 3, 1}, {4, 1, 5}}, {{"expression", affine}}, Affine},
      {"layernorm", {{5, 17}, {17}, {17}}, {}, Norm},
      {"layernorm", {{2, 3, 1031}, {1031}, {1031}}, {{"epsilon", 0.5}}, Norm},
      {"rmsnorm", {{5, 17}, {17}}, {}, Norm},
      {"linear", {{5, 17}, {9, 17}, {9}}, {}, Linear},
      {"linear", {{2, 3, 7}, {300, 7}, {300}}, {{"activation", tanh_form}}, Linear},
      {"linear", {{7}, {3, 7}, {3}}, {{"activation", erf_form}}, Linear},
      {"linear", {{5, 0}, {4, 0}, {4}}, {{"activation", relu}}, Linear},
      {"rmsnorm", {{2, 3, 4, 5}, {5}}, {{"epsilon", 2.0}}, Norm},
  };
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      const std::vector<NamedAttribute> transposes = {{"transpose_a", a}, {"transpose_b", b}};
      const auto matrix = [](bool transpose, int64_t rows, int64_t columns, Dims batch) {
        batch.push_back(transpose ? columns : rows);
        batch.push_back(transpose ? rows : columns);
        return batch;
      };
      examples.push_back(
          {"matmul", {matrix(a, 3, 7, {}), matrix(b, 7, 5, {})}, transposes, Matmul});
      examples.push_back(
          {"matmul", {matrix(a, 2, 4, {3, 1}), matrix(b, 4, 3, {2})}, transposes, Matmul});
      examples.push_back(
          {"matmul", {matrix(a, 1, 600, {}), matrix(b, 600, 2, {2, 1, 2})}, transposes, Matmul});
    }
  }
  return examples;
}

// Every element of the output, by the definition; those that it does not yield are NaN.
std::vector<double> Evaluate(const Op& op, const Instance& instance) {
  const Operands operands = OperandsOf(instance.inputs);
  std::vector<double> values(static_cast<size_t>(instance.problem.outputs[0].elements()),
                             std::numeric_limits<double>::quiet_NaN());
  for (int64_t i = 0, slices = op.definition->slices(instance.problem); i < slices; ++i) {
    const Slice slice = op.definition->slice(instance.problem, i);
    int64_t element = slice.first;
    op.definition->evaluate(instance.problem, operands, i, [&](absl::Span<const double> some) {
      for (const double value : some) {
        values[static_cast<size_t>(element)] = value;
        element += slice.stride;
      }
    });
  }
  return values;
}

TEST(DefinitionTruth, IsWhatTheFormulasSay) {
  for (const Example& example : Examples()) {
    for (const DataType type : kDataTypes) {
      const Op& op = *(*FullRegistry().Find(example.kernel))->op;
      std::vector<TensorSpec> specs;
      std::string label = absl::StrCat(example.kernel, " seed ", RunSeed());
      for (const Dims& dims : example.shapes) {
        specs.push_back({type, dims});
        absl::StrAppend(&label, " ", ToString(specs.back()));
      }
      SCOPED_TRACE(label);
      Instance instance;
      instance.problem = *MakeProblem(op, specs, example.attributes);
      for (const TensorSpec& spec : specs)
        instance.inputs.push_back(
            FilledInput(spec, example.fill, absl::StrCat(label, instance.inputs.size())));
      const std::vector<double> values = Evaluate(op, instance);
      ASSERT_FALSE(values.empty());
      for (size_t i = 0; i < values.size(); ++i) {
        const Indices at = IndicesOf(static_cast<int64_t>(i), instance.problem.outputs[0].dims);
        const auto truth = static_cast<double>(example.formula(instance, at));
        // Some hundred roundings of 2^-53, of terms that may cancel in a sum of 600.
        ASSERT_NEAR(values[i], truth, 1e-13 * (1 + std::fabs(truth))) << "element " << i;
      }
    }
  }
}

TEST(DefinitionTruth, EveryKernelHasAFormula) {
  const std::vector<Example> examples = Examples();
  for (const Kernel& kernel : FullRegistry().kernels())
    EXPECT_TRUE(std::any_of(
        examples.begin(), examples.end(),
        [&](const Example& example) { return std::string(kernel.op->name) == example.kernel; }))
        << kernel.op->name
        << ": add it to Examples(), with a `fill` that reaches where its formula bends";
}

}  // namespace
}  // namespace warpcall::testing
