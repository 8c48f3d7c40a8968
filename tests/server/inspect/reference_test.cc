#include "server/inspect/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/identity/identity.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/half.h"

namespace warpcall::inspect {
namespace {

// Days: however long the first slices are kept from a core, all are affordable.
constexpr int64_t kPlentyNs = 1'000'000'000'000'000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The reference of identity of some values, which are also its right output.
class Copied {
 public:
  explicit Copied(std::vector<float> values) : values_(std::move(values)) {
    problem_ = *MakeProblem(IdentityOp(),
                            {{DataType::kFloat32, {static_cast<int64_t>(values_.size())}}}, {});
  }

  OutputError Compare(const std::vector<float>& output, int64_t ns_max = kPlentyNs) {
    Operands operands;
    operands.inputs.push_back(values_.data());
    return Reference({&IdentityOp(), &problem_, &operands}, ns_max, &pool_).Compare(output.data());
  }

 private:
  cpu::ThreadPool pool_{3};
  std::vector<float> values_;
  Problem problem_;
};

TEST(ReferenceTest, ARightOutputHasNoError) {
  const std::vector<float> values = {1, -2, 3, 0};
  const OutputError error = Copied(values).Compare(values);
  EXPECT_EQ(error.relative, 0);
  EXPECT_EQ(error.elements, 4);
}

TEST(ReferenceTest, ErrorIsTheNormOfTheDifferenceOverTheReferences) {
  EXPECT_DOUBLE_EQ(Copied({3, 4}).Compare({3, 5}).relative, 1.0 / 5);
  EXPECT_DOUBLE_EQ(Copied({3, 4}).Compare({0, 0}).relative, 1);
  EXPECT_DOUBLE_EQ(Copied({0, 0}).Compare({3, 4}).relative, 5);
  EXPECT_EQ(Copied({0, 0}).Compare({0, -0.0f}).relative, 0);
}

TEST(ReferenceTest, OneWrongElementOfManyIsSeenWherever) {
  std::vector<float> values(100'000, 1);
  Copied copied(values);
  for (const size_t at : {size_t{0}, size_t{1023}, size_t{1024}, size_t{50'000}, size_t{99'999}}) {
    std::vector<float> output = values;
    output[at] += 1;
    const OutputError error = copied.Compare(output);
    EXPECT_NEAR(error.relative, std::sqrt(1e-5), 1e-12) << at;
    EXPECT_EQ(error.elements, 100'000);
  }
}

TEST(ReferenceTest, SpecialValuesCountAsEqualOnlyWhereBothHaveThem) {
  const std::vector<float> values = {1, kInfinity, -kInfinity, kNan};
  Copied copied(values);
  EXPECT_EQ(copied.Compare(values).relative, 0);
  EXPECT_TRUE(std::isnan(copied.Compare({kNan, kInfinity, -kInfinity, kNan}).relative));
  EXPECT_TRUE(std::isnan(copied.Compare({1, kInfinity, -kInfinity, 0}).relative));
  EXPECT_TRUE(std::isnan(copied.Compare({1, kNan, -kInfinity, kNan}).relative));
  EXPECT_EQ(copied.Compare({kInfinity, kInfinity, -kInfinity, kNan}).relative, kInfinity);
  EXPECT_EQ(copied.Compare({1, 5, -kInfinity, kNan}).relative, kInfinity);
  EXPECT_EQ(copied.Compare({1, kInfinity, kInfinity, kNan}).relative, kInfinity);
}

// 300 x 300 is no float16: its infinity is the right result.
TEST(ReferenceTest, OverflowOfTheDataTypeIsRight) {
  const Problem problem =
      *MakeProblem(MatmulOp(), {{DataType::kFloat16, {1, 1}}, {DataType::kFloat16, {1, 1}}}, {});
  const Float16 value = FromFloat<Float16>(300);
  Operands operands;
  operands.inputs = {&value, &value};
  cpu::ThreadPool pool(1);
  const Reference reference({&MatmulOp(), &problem, &operands}, kPlentyNs, &pool);
  const Float16 infinite = FromFloat<Float16>(kInfinity);
  const Float16 largest = FromFloat<Float16>(65504);
  EXPECT_EQ(reference.Compare(&infinite).relative, 0);
  EXPECT_EQ(reference.Compare(&largest).relative, kInfinity);
}

TEST(ReferenceTest, WithoutTimeOneSliceIsCompared) {
  std::vector<float> values(1 << 20, 1);
  const OutputError error = Copied(values).Compare(values, 0);
  EXPECT_EQ(error.elements, 1024);
  EXPECT_EQ(error.relative, 0);
}

// The compared slices are spread over the output, ends included: an error in all rows of a matrix
// but the first is seen.
TEST(ReferenceTest, ASampleIsSpreadFromEndToEnd) {
  constexpr int64_t kRows = 3'000'000;  // more slices than are ever compared
  const Problem problem = *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {kRows, 1}}}, {});
  const std::vector<float> input(kRows, 0.5f);
  Operands operands;
  operands.inputs.push_back(input.data());
  cpu::ThreadPool pool(2);
  const Reference reference({&SoftmaxOp(), &problem, &operands}, kPlentyNs, &pool);
  std::vector<float> output(kRows, 1);
  EXPECT_EQ(reference.Compare(output.data()).elements, Reference::kSlicesMax);
  EXPECT_EQ(reference.Compare(output.data()).relative, 0);
  output.back() = 2;
  EXPECT_GT(reference.Compare(output.data()).relative, 0);
  output.back() = 1;
  const double third = 1.0 / 3;
  for (const double part : {0.0, third, 2 * third}) {
    std::vector<float> wrong = output;
    const auto begin = static_cast<int64_t>(part * kRows);
    std::fill_n(wrong.begin() + begin, kRows / 3, 2.0f);
    const double relative = reference.Compare(wrong.data()).relative;
    EXPECT_NEAR(relative * relative, third, 0.01) << part;
  }
}

// There is room to compare every second row; the ranges leave out the rows between.
TEST(ReferenceTest, RangesHoldAllThatIsComparedAndLittleElse) {
  constexpr int64_t kColumns = int64_t{1} << 17;
  constexpr int64_t kRows = 2 * Reference::kElementsMax / kColumns;
  const Problem problem = *MakeProblem(SoftmaxOp(), {{DataType::kBFloat16, {kRows, kColumns}}}, {});
  const std::vector<BFloat16> input(kRows * kColumns, FromFloat<BFloat16>(0));
  Operands operands;
  operands.inputs.push_back(input.data());
  cpu::ThreadPool pool(2);
  const Reference reference({&SoftmaxOp(), &problem, &operands}, kPlentyNs, &pool);
  std::vector<BFloat16> output(kRows * kColumns, FromFloat<BFloat16>(kNan));
  int64_t elements = 0;
  for (const ElementRange& range : reference.ranges()) {
    std::fill(output.begin() + range.first, output.begin() + range.last,
              FromFloat<BFloat16>(1.0f / kColumns));
    elements += range.last - range.first;
  }
  EXPECT_EQ(reference.Compare(output.data()).relative, 0);
  EXPECT_EQ(reference.Compare(output.data()).elements, Reference::kElementsMax);
  EXPECT_LE(elements, kRows * kColumns * 6 / 10);
}

// Adjacent elements make one range; columns lie between each other.
TEST(ReferenceTest, RangesOfColumnsAreTheWholeOutput) {
  const Problem problem =
      *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {300, 7}}}, {{"axis", int64_t{0}}});
  const std::vector<float> input(2100, 0);
  Operands operands;
  operands.inputs.push_back(input.data());
  cpu::ThreadPool pool(2);
  const Reference reference({&SoftmaxOp(), &problem, &operands}, kPlentyNs, &pool);
  ASSERT_EQ(reference.ranges().size(), 1u);
  EXPECT_EQ(reference.ranges()[0].first, 0);
  EXPECT_EQ(reference.ranges()[0].last, 2100);
}

// A slice longer than the limit: every second element.
TEST(ReferenceTest, OfALongSliceEverySecondElementIsCompared) {
  constexpr int64_t kLong = Reference::kElementsMax + 4;
  const Problem problem = *MakeProblem(SoftmaxOp(), {{DataType::kBFloat16, {kLong}}}, {});
  const std::vector<BFloat16> input(kLong, FromFloat<BFloat16>(0));
  Operands operands;
  operands.inputs.push_back(input.data());
  cpu::ThreadPool pool(1);
  const Reference reference({&SoftmaxOp(), &problem, &operands}, kPlentyNs, &pool);
  std::vector<BFloat16> output(kLong, FromFloat<BFloat16>(1.0f / kLong));
  const OutputError error = reference.Compare(output.data());
  EXPECT_EQ(error.elements, kLong / 2);
  EXPECT_LT(error.relative, 0x1p-8);
  output[kLong - 2] = FromFloat<BFloat16>(1);
  EXPECT_GT(reference.Compare(output.data()).relative, 1);
}

TEST(ReferenceTest, NothingIsComparedOfNothing) {
  EXPECT_EQ(Copied({}).Compare({}).elements, 0);
  EXPECT_EQ(Copied({}).Compare({}).relative, 0);
}

}  // namespace
}  // namespace warpcall::inspect
