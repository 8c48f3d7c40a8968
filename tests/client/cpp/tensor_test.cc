#include "warpcall/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "proto/common/half.h"

namespace warpcall::client {
namespace {

using ::testing::ElementsAre;

TEST(TensorViewTest, ReadsElementsOfEveryTypeWhereTheyLie) {
  const auto check = []<typename T>(T) {
    const Tensor tensor =
        Tensor::From<T>({3}, {FromFloat<T>(1.5f), FromFloat<T>(-2), FromFloat<T>(0.25f)});
    EXPECT_EQ(tensor.data_type(), DataTypeOf<T>());
    EXPECT_EQ(tensor.data().size(), 3 * sizeof(T));
    const absl::StatusOr<TensorView<T>> view = tensor.View<T>();
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->size(), 3u);
    EXPECT_EQ(ToFloat((*view)[1]), -2);
    std::vector<float> values;
    for (const T element : *view) values.push_back(ToFloat(element));
    EXPECT_THAT(values, ElementsAre(1.5f, -2, 0.25f));
    EXPECT_EQ(view->end() - view->begin(), 3);
    const auto least = std::min_element(view->begin(), view->end(),
                                        [](T a, T b) { return ToFloat(a) < ToFloat(b); });
    EXPECT_EQ(least - view->begin(), 1);
    EXPECT_THAT(tensor.ToFloats(), ElementsAre(1.5f, -2, 0.25f));
  };
  check(float{});
  check(Float16{});
  check(BFloat16{});
  EXPECT_TRUE(Tensor().View<float>()->empty());
  EXPECT_THAT(Tensor().ToFloats(), ElementsAre());
}

// Bytes from a network or a file begin at any address; a sanitizer reports readers that assume
// alignment.
TEST(TensorViewTest, BytesNeedNotBeAligned) {
  const float values[] = {3, -1e-45f, 7};
  alignas(float) char bytes[sizeof values + 1];
  std::memcpy(bytes + 1, values, sizeof values);
  const Tensor tensor = Tensor::Borrow(DataType::kFloat32, {3}, {bytes + 1, sizeof values});
  EXPECT_THAT(tensor.View<float>().value(), ElementsAre(3, -1e-45f, 7));
  EXPECT_THAT(tensor.ToFloats(), ElementsAre(3, -1e-45f, 7));
}

TEST(TensorViewTest, AnotherTypeIsRefusedByName) {
  const Tensor tensor = Tensor::FromFloats(DataType::kBFloat16, {2}, {1, 2});
  EXPECT_EQ(tensor.View<float>().status(),
            absl::InvalidArgumentError("the tensor is bfloat16, not float32"));
  EXPECT_EQ(tensor.View<Float16>().status(),
            absl::InvalidArgumentError("the tensor is bfloat16, not float16"));
  EXPECT_TRUE(tensor.View<BFloat16>().ok());
}

TEST(TensorTest, FloatsAreRoundedToNearestWithTiesToEven) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Ties of bfloat16 and of float16, then values that only one of them can hold.
  const std::vector<float> values = {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1p-11f, 1e30f, -kInfinity};
  EXPECT_THAT(Tensor::FromFloats(DataType::kBFloat16, {5}, values).ToFloats(),
              ElementsAre(1, 1 + 0x1p-6f, 1, ::testing::FloatNear(1e30f, 1e28f), -kInfinity));
  EXPECT_THAT(Tensor::FromFloats(DataType::kFloat16, {5}, values).ToFloats(),
              ElementsAre(values[0], values[1], 1, kInfinity, -kInfinity));
  EXPECT_EQ(Tensor::FromFloats(DataType::kFloat32, {5}, values).ToFloats(), values);
}

TEST(TensorTest, EveryHalfSurvivesTheWayToFloatAndBack) {
  const auto check = []<typename T>(T) {
    std::vector<T> all;
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const T value{static_cast<uint16_t>(bits)};
      if (!std::isnan(ToFloat(value))) all.push_back(value);
    }
    const std::vector<int64_t> shape = {static_cast<int64_t>(all.size())};
    const Tensor tensor = Tensor::From<T>(shape, all);
    const Tensor back = Tensor::FromFloats(DataTypeOf<T>(), shape, tensor.ToFloats());
    EXPECT_EQ(back.data(), tensor.data());
  };
  check(Float16{});
  check(BFloat16{});
}

TEST(AllocateBytesTest, GivesMemoryOfAnySize) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, (size_t{4} << 20) - 1,
                             size_t{4} << 20, (size_t{5} << 20) + 3}) {
    const auto memory = AllocateBytes(bytes);
    ASSERT_NE(memory, nullptr) << bytes;
    std::memset(memory.get(), 'x', bytes);
    const size_t alignment = bytes >= size_t{4} << 20 ? size_t{2} << 20 : alignof(float);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % alignment, 0u) << bytes;
  }
}

}  // namespace
}  // namespace warpcall::client
