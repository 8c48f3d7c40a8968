#include "client/cpp/calls/stripes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/client/bytes.h"

namespace warpcall::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kMiB;

KernelInfo Kernel(Independence independence) {
  KernelInfo kernel;
  kernel.name = "kernel";
  kernel.attributes.push_back(
      {.name = "axis", .summary = "", .default_value = int64_t{-1}, .allowed_values = {}});
  kernel.independence = independence;
  return kernel;
}

// Bytes that nobody reads: plans look at sizes alone.
Tensor Unread(DataType type, const std::vector<int64_t>& shape) {
  static const char start = 0;
  const auto bytes = static_cast<size_t>(ByteCount(type, shape).value());
  return Tensor::Borrow(type, shape, absl::Span<const char>(&start, bytes));
}

std::vector<Stripe> Plan(Independence independence, const Call& call, int stripes_max) {
  return PlanStripes(call, Kernel(independence), stripes_max);
}

// Every element once and in order; starts on 256 bytes where `aligned`.
void ExpectCovers(const std::vector<Stripe>& stripes, const Call& call, bool aligned) {
  int64_t next = 0;
  for (const Stripe& stripe : stripes) {
    EXPECT_EQ(stripe.begin_element, next);
    EXPECT_GT(stripe.elements, 0);
    int64_t product = 1;
    for (const int64_t dimension : stripe.shape) product *= dimension;
    EXPECT_EQ(product, stripe.elements);
    for (const Tensor& input : call.inputs) {
      const auto element = static_cast<int64_t>(ElementBytes(input.data_type()));
      EXPECT_TRUE(!aligned || stripe.begin_element * element % 256 == 0) << stripe.begin_element;
    }
    next += stripe.elements;
  }
  const Tensor& x = call.inputs.front();
  EXPECT_EQ(next, static_cast<int64_t>(x.data().size() / ElementBytes(x.data_type())));
}

TEST(StripesTest, ElementsAreSpreadEvenlyOnAlignedBoundaries) {
  for (const int64_t count : {3 * kMiB, 3 * kMiB + 1, 3 * kMiB - 1, 2'999'999 + kMiB}) {
    const Call call{.kernel = "kernel", .inputs = {Unread(DataType::kFloat16, {count})}};
    const auto stripes = Plan(Independence::kElements, call, 3);
    ASSERT_EQ(stripes.size(), 3u);
    ExpectCovers(stripes, call, true);
    for (const Stripe& stripe : stripes) {
      EXPECT_EQ(stripe.shape.size(), 1u);
      EXPECT_NEAR(static_cast<double>(stripe.elements), static_cast<double>(count) / 3, 256);
    }
  }
}

TEST(StripesTest, EveryStripeHasTheLeastNumberOfBytes) {
  const auto stripes = [](int64_t floats, int connections) {
    return Plan(Independence::kElements,
                {.kernel = "kernel", .inputs = {Unread(DataType::kFloat32, {floats})}}, connections)
        .size();
  };
  EXPECT_EQ(stripes(kMiB / 2 - 1, 8), 0u);
  EXPECT_EQ(stripes(kMiB / 2, 8), 2u);
  EXPECT_EQ(stripes(kMiB, 8), 4u);
  EXPECT_EQ(stripes(100 * kMiB, 8), 8u);
  EXPECT_EQ(stripes(100 * kMiB, 1), 0u);
  EXPECT_FALSE(LargeEnoughToStripe(
      {.kernel = "kernel", .inputs = {Unread(DataType::kFloat32, {kMiB / 2 - 1})}}));
  EXPECT_TRUE(LargeEnoughToStripe(
      {.kernel = "kernel", .inputs = {Unread(DataType::kFloat32, {kMiB / 2})}}));
}

TEST(StripesTest, RowsBeforeTheAxisStayWhole) {
  // 1000 rows of 1001 elements; a row is 2002 bytes, so 128 rows make a multiple of 256.
  Call call{.kernel = "kernel", .inputs = {Unread(DataType::kBFloat16, {10, 100, 1001})}};
  auto stripes = Plan(Independence::kBeforeAxis, call, 2);
  ASSERT_EQ(stripes.size(), 0u);  // below 2 MiB
  call.inputs = {Unread(DataType::kFloat32, {10, 100, 1001})};
  stripes = Plan(Independence::kBeforeAxis, call, 2);
  ASSERT_EQ(stripes.size(), 2u);
  ExpectCovers(stripes, call, true);
  EXPECT_THAT(stripes[0].shape, ElementsAre(448, 1001));
  EXPECT_THAT(stripes[1].shape, ElementsAre(552, 1001));

  call.attributes["axis"] = int64_t{1};
  stripes = Plan(Independence::kBeforeAxis, call, 3);
  ASSERT_EQ(stripes.size(), 3u);
  ExpectCovers(stripes, call, false);  // 10 rows are too few to align
  EXPECT_THAT(stripes[0].shape, ElementsAre(3, 100, 1001));
  EXPECT_THAT(stripes[2].shape, ElementsAre(4, 100, 1001));

  call.attributes["axis"] = int64_t{-3};
  EXPECT_THAT(Plan(Independence::kBeforeAxis, call, 3), IsEmpty());  // one part
}

TEST(StripesTest, ThereAreNoMoreStripesThanParts) {
  const Call call{.kernel = "kernel", .inputs = {Unread(DataType::kFloat32, {3, 2 * kMiB})}};
  const auto stripes = Plan(Independence::kBeforeAxis, call, 8);
  ASSERT_EQ(stripes.size(), 3u);
  ExpectCovers(stripes, call, true);
}

TEST(StripesTest, InputsOfDifferentTypesAreCutAtTheSameElements) {
  const std::vector<int64_t> shape = {kMiB + 77};
  const Call call{.kernel = "kernel",
                  .inputs = {Unread(DataType::kFloat32, shape), Unread(DataType::kFloat16, shape)}};
  const auto stripes = Plan(Independence::kElements, call, 5);
  ASSERT_EQ(stripes.size(), 5u);
  ExpectCovers(stripes, call, true);
}

TEST(StripesTest, WhatIsOnePieceOrNotValidIsSentWhole) {
  const auto f32 = [](const std::vector<int64_t>& shape) {
    return Unread(DataType::kFloat32, shape);
  };
  constexpr auto kElements = Independence::kElements;
  constexpr auto kRows = Independence::kBeforeAxis;
  EXPECT_THAT(Plan(Independence::kNone, {.kernel = "kernel", .inputs = {f32({kMiB})}}, 4),
              IsEmpty());
  EXPECT_THAT(Plan(kElements, {.kernel = "kernel"}, 4), IsEmpty());
  EXPECT_THAT(Plan(kElements, {.kernel = "kernel", .inputs = {f32({2, kMiB}), f32({kMiB, 2})}}, 4),
              IsEmpty());
  EXPECT_THAT(
      Plan(kElements, {.kernel = "kernel", .inputs = {f32({1, 1, 1, 1, 1, 1, 1, 1, kMiB})}}, 4),
      IsEmpty());
  EXPECT_EQ(
      Plan(kElements, {.kernel = "kernel", .inputs = {f32({1, 1, 1, 1, 1, 1, 1, kMiB})}}, 4).size(),
      4u);
  EXPECT_THAT(Plan(kElements, {.kernel = "kernel", .inputs = {f32({0, kMiB})}}, 4), IsEmpty());
  const Tensor wrong = Tensor::Borrow(DataType::kFloat32, {kMiB + 1}, f32({kMiB}).data());
  EXPECT_THAT(Plan(kElements, {.kernel = "kernel", .inputs = {wrong}}, 4), IsEmpty());
  const Tensor scalar = Tensor::Borrow(DataType::kFloat32, {}, f32({kMiB}).data());
  EXPECT_THAT(Plan(kElements, {.kernel = "kernel", .inputs = {scalar}}, 4), IsEmpty());
  const Tensor negative = Tensor::Borrow(DataType::kFloat32, {-1, -kMiB}, f32({kMiB}).data());
  EXPECT_THAT(Plan(kElements, {.kernel = "kernel", .inputs = {negative}}, 4), IsEmpty());

  const Call rows{.kernel = "kernel", .inputs = {f32({1024, 1024})}};
  EXPECT_EQ(Plan(kRows, rows, 4).size(), 4u);
  for (const AttributeValue& axis :
       {AttributeValue(int64_t{2}), AttributeValue(int64_t{-3}), AttributeValue(1.0),
        AttributeValue(true), AttributeValue(std::string("1"))}) {
    Call call = rows;
    call.attributes["axis"] = axis;
    EXPECT_THAT(Plan(kRows, call, 4), IsEmpty());
  }
  KernelInfo no_default = Kernel(kRows);
  no_default.attributes.clear();
  EXPECT_THAT(PlanStripes(rows, no_default, 4), IsEmpty());
}

KernelInfo SharingKernel(std::vector<OperandRole> roles) {
  KernelInfo kernel = Kernel(Independence::kRows);
  kernel.input_roles = std::move(roles);
  return kernel;
}

TEST(StripesTest, SharedInputsGoWithEveryStripe) {
  constexpr auto kF32 = DataType::kFloat32;
  // x[2, 1024, 512], weight[3], z[2, 1024, 7] and scale[1, 1].
  const Call call{.kernel = "kernel",
                  .inputs = {Unread(kF32, {2, 1024, 512}), Unread(kF32, {3}),
                             Unread(DataType::kFloat16, {2, 1024, 7}), Unread(kF32, {1, 1})}};
  const KernelInfo kernel = SharingKernel(
      {OperandRole::kSplit, OperandRole::kShared, OperandRole::kSplit, OperandRole::kShared});
  const auto stripes = PlanStripes(call, kernel, 3);
  ASSERT_EQ(stripes.size(), 3u);
  int64_t rows = 0;
  for (const Stripe& stripe : stripes) {
    EXPECT_EQ(stripe.begin_part, rows);
    EXPECT_EQ(stripe.begin_element, rows * 512);
    const Call part = StripeCall(call, kernel, stripe);
    ASSERT_EQ(part.inputs.size(), 4u);
    const int64_t count = stripe.shape[0];
    EXPECT_THAT(part.inputs[0].shape(), ElementsAre(count, 512));
    EXPECT_EQ(part.inputs[0].data().data(), call.inputs[0].data().data() + rows * 2048);
    EXPECT_THAT(part.inputs[2].shape(), ElementsAre(count, 7));
    EXPECT_EQ(part.inputs[2].data().data(), call.inputs[2].data().data() + rows * 14);
    EXPECT_EQ(part.inputs[2].data().size(), static_cast<size_t>(count) * 14);
    for (const size_t shared : {1, 3}) {
      EXPECT_EQ(part.inputs[shared].shape(), call.inputs[shared].shape());
      EXPECT_EQ(part.inputs[shared].data().data(), call.inputs[shared].data().data());
      EXPECT_EQ(part.inputs[shared].data().size(), call.inputs[shared].data().size());
    }
    const auto place = PlaceOutput(call, kernel, stripe, {count, 9});
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_THAT(place->whole_shape, ElementsAre(2, 1024, 9));
    EXPECT_EQ(place->begin_element, rows * 9);
    for (const std::vector<int64_t>& wrong :
         {std::vector<int64_t>{count + 1, 9}, {count}, {count, 3, 3}, {count, int64_t{1} << 60}})
      EXPECT_FALSE(PlaceOutput(call, kernel, stripe, wrong).ok());
    rows += count;
  }
  EXPECT_EQ(rows, 2048);
}

TEST(StripesTest, AStripeHasMoreOfItsOwnThanItShares) {
  const auto stripes = [](int64_t shared_bytes) {
    return PlanStripes({.kernel = "kernel",
                        .inputs = {Unread(DataType::kFloat32, {1024, 2048}),  // 8 MiB
                                   Unread(DataType::kFloat32, {shared_bytes / 4})}},
                       SharingKernel({OperandRole::kSplit, OperandRole::kShared}), 8)
        .size();
  };
  EXPECT_EQ(stripes(kMiB), 8u);
  EXPECT_EQ(stripes(2 * kMiB), 4u);
  EXPECT_EQ(stripes(4 * kMiB), 2u);
  EXPECT_EQ(stripes(4 * kMiB + 4), 0u);
}

TEST(StripesTest, RowsThatDoNotFitGoWhole) {
  const Tensor x = Unread(DataType::kFloat32, {1024, 2048});
  const KernelInfo split = SharingKernel({});
  EXPECT_EQ(PlanStripes({.kernel = "kernel", .inputs = {x, x}}, split, 4).size(), 4u);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2048}, {1023, 2048}, {2, 512, 2048}})
    EXPECT_THAT(PlanStripes({.kernel = "kernel", .inputs = {x, Unread(DataType::kFloat32, shape)}},
                            split, 4),
                IsEmpty());
  EXPECT_THAT(
      PlanStripes({.kernel = "kernel", .inputs = {x}}, SharingKernel({OperandRole::kShared}), 4),
      IsEmpty());
  EXPECT_THAT(PlanStripes({.kernel = "kernel", .inputs = {Unread(DataType::kFloat32, {4 * kMiB})}},
                          split, 4),
              IsEmpty());  // one row
}

Tensor Floats(const std::vector<int64_t>& shape) { return Unread(DataType::kFloat32, shape); }

// Shapes of the second stripe's inputs, of two stripes; empty if the call goes whole.
std::vector<std::vector<int64_t>> ShapesOfSecond(const Call& call, const KernelInfo& kernel) {
  const auto stripes = PlanStripes(call, kernel, 2);
  std::vector<std::vector<int64_t>> shapes;
  if (stripes.size() != 2) return shapes;
  const Call part = StripeCall(call, kernel, stripes[1]);
  for (size_t i = 0; i < part.inputs.size(); ++i) {
    const Tensor& input = part.inputs[i];
    shapes.emplace_back(input.shape().begin(), input.shape().end());
    const bool all = input.data().size() == call.inputs[i].data().size();
    const size_t begin = all ? 0 : call.inputs[i].data().size() - input.data().size();
    EXPECT_EQ(input.data().data(), call.inputs[i].data().data() + begin);
  }
  return shapes;
}

TEST(StripesTest, BroadcastRowsAreSplitOrShared) {
  const KernelInfo kernel = Kernel(Independence::kBroadcastRows);
  const auto shapes = [&](const std::vector<Tensor>& inputs, const char* expression) {
    return ShapesOfSecond({.kernel = "kernel",
                           .inputs = inputs,
                           .attributes = {{"expression", std::string(expression)}}},
                          kernel);
  };
  const Tensor x = Floats({2, 512, 1024});
  EXPECT_THAT(shapes({x, Floats({1024})}, "x0 + x1"),
              ElementsAre(ElementsAre(512, 1024), ElementsAre(1024)));
  EXPECT_THAT(shapes({Floats({1, 1, 1024}), x, Floats({2, 512, 1})}, "x0 + x1 * x2"),
              ElementsAre(ElementsAre(1024), ElementsAre(512, 1024), ElementsAre(512, 1)));
  EXPECT_THAT(shapes({x}, "dropout(x0, 0.5)"), IsEmpty());
  EXPECT_THAT(shapes({x, Floats({512, 1024})}, "x0 + x1"), IsEmpty());
  EXPECT_THAT(shapes({x, Floats({1, 1, 1, 1024})}, "x0 + x1"), IsEmpty());
  EXPECT_THAT(shapes({Floats({1, kMiB})}, "x0"), IsEmpty());
  EXPECT_THAT(ShapesOfSecond({.kernel = "kernel", .inputs = {x}}, kernel), IsEmpty());

  const Call call{.kernel = "kernel",
                  .inputs = {Floats({1024}), x},
                  .attributes = {{"expression", std::string("sum(x0 + x1)")}}};
  const auto stripes = PlanStripes(call, kernel, 2);
  ASSERT_EQ(stripes.size(), 2u);
  const auto place = PlaceOutput(call, kernel, stripes[1], {512, 1});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_THAT(place->whole_shape, ElementsAre(2, 512, 1));
  EXPECT_EQ(place->begin_element, 512);
}

TEST(StripesTest, ProductsAreSplitAtRowsOrMatrices) {
  KernelInfo kernel = Kernel(Independence::kProductRows);
  kernel.attributes.push_back(
      {.name = "transpose_a", .summary = "", .default_value = false, .allowed_values = {}});
  const auto call = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b, bool turned) {
    Call call{.kernel = "kernel", .inputs = {Floats(a), Floats(b)}};
    if (turned) call.attributes["transpose_a"] = true;
    return call;
  };
  EXPECT_THAT(ShapesOfSecond(call({4096, 512}, {512, 64}, false), kernel),
              ElementsAre(ElementsAre(2048, 512), ElementsAre(512, 64)));
  EXPECT_THAT(ShapesOfSecond(call({4, 1024, 512}, {512, 64}, false), kernel),
              ElementsAre(ElementsAre(2048, 512), ElementsAre(512, 64)));
  EXPECT_THAT(ShapesOfSecond(call({512, 4096}, {512, 64}, true), kernel), IsEmpty());
  const Call batch = call({4, 2, 512, 256}, {4, 2, 512, 64}, true);
  EXPECT_THAT(ShapesOfSecond(batch, kernel),
              ElementsAre(ElementsAre(4, 512, 256), ElementsAre(4, 512, 64)));
  EXPECT_THAT(ShapesOfSecond(call({4, 2, 512, 256}, {2, 256, 64}, false), kernel), IsEmpty());
  EXPECT_THAT(ShapesOfSecond(call({4096, 512}, {3, 512, 64}, false), kernel), IsEmpty());

  const auto stripes = PlanStripes(batch, kernel, 2);
  const auto place = PlaceOutput(batch, kernel, stripes[1], {4, 256, 64});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_THAT(place->whole_shape, ElementsAre(4, 2, 256, 64));
  EXPECT_EQ(place->begin_element, 4 * 256 * 64);
  EXPECT_FALSE(PlaceOutput(batch, kernel, stripes[1], {4, 256 * 64}).ok());
}

TEST(StripesTest, AStripesCallSharesBytesAndKeepsTheRest) {
  const std::vector<float> values(2 * kMiB);
  const Tensor owned = Tensor::FromFloats({1024, 2048}, values);
  Call call{.kernel = "kernel",
            .inputs = {owned},
            .attributes = {{"axis", int64_t{-1}}, {"other", true}},
            .options = {.implementation = "row", .device = "cpu", .request_id = "r"}};
  const KernelInfo kernel = Kernel(Independence::kBeforeAxis);
  const auto stripes = PlanStripes(call, kernel, 2);
  ASSERT_EQ(stripes.size(), 2u);
  const Call second = StripeCall(call, kernel, stripes[1]);
  EXPECT_EQ(second.inputs[0].data().data(), owned.data().data() + 4 * kMiB);
  EXPECT_EQ(second.inputs[0].data().size(), static_cast<size_t>(4 * kMiB));
  EXPECT_EQ(second.inputs[0].owner(), owned.owner());
  EXPECT_THAT(second.inputs[0].shape(), ElementsAre(512, 2048));
  EXPECT_EQ(second.attributes.at("axis"), AttributeValue(int64_t{1}));
  EXPECT_EQ(second.attributes.at("other"), AttributeValue(true));
  EXPECT_EQ(second.kernel, "kernel");
  EXPECT_EQ(second.options.implementation, "row");
  EXPECT_EQ(second.options.device, "cpu");
  EXPECT_EQ(second.options.request_id, "r");
}

}  // namespace
}  // namespace warpcall::client
