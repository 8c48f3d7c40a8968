#include "client/cli/load/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/common/tensor_text.h"
#include "proto/common/half.h"
#include "tests/client/bytes.h"

namespace warpcall::cli {
namespace {

using client::Tensor;
using testing::Bytes;
using ::testing::HasSubstr;

template <typename T>
float Element(const Tensor& tensor, size_t index) {
  T value;
  std::memcpy(&value, tensor.data().data() + index * sizeof(T), sizeof(T));
  return ToFloat(value);
}

float Element(const Tensor& tensor, size_t index) {
  switch (tensor.data_type()) {
    case DataType::kFloat16:
      return Element<Float16>(tensor, index);
    case DataType::kBFloat16:
      return Element<BFloat16>(tensor, index);
    default:
      return Element<float>(tensor, index);
  }
}

LoadEntryCalls Make(const LoadEntry& entry, uint64_t seed = 1) {
  auto calls = MakeCalls(entry, {}, seed);
  EXPECT_TRUE(calls.ok()) << calls.status();
  return *std::move(calls);
}

// Zero filled.
Tensor Output(const Shape& shape, DataType type = DataType::kFloat32) {
  const auto bytes = static_cast<size_t>(client::ByteCount(type, shape).value());
  const auto data = std::make_shared<std::string>(bytes, '\0');
  return Tensor(type, shape, {data->data(), bytes}, data);
}

client::Result ResultWith(Tensor output) {
  client::Result result;
  result.outputs.push_back(std::move(output));
  return result;
}

TEST(MakeCallsTest, InputsAreRandomFiniteAndNeverZero) {
  for (const DataType type : kDataTypes) {
    const auto made = Make({.kernel = "gelu", .shapes = {{50, 101}, {3}}, .data_type = type});
    ASSERT_EQ(made.calls.size(), 8u);
    std::set<std::string> different;
    for (const client::Call& call : made.calls) {
      ASSERT_EQ(call.inputs.size(), 2u);
      const Tensor& input = call.inputs[0];
      EXPECT_EQ(input.shape(), absl::MakeConstSpan({int64_t{50}, int64_t{101}}));
      EXPECT_EQ(input.data().size(), 5050 * ElementBytes(type));
      double sum = 0;
      for (size_t i = 0; i < 5050; ++i) {
        const float value = Element(input, i);
        ASSERT_GE(std::abs(value), 0.0625f);
        ASSERT_LE(std::abs(value), 1.0f);
        sum += value;
      }
      EXPECT_NEAR(sum / 5050, 0, 5 * 0.6 / std::sqrt(5050));  // both signs alike
      different.insert(Bytes(input));
      different.insert(Bytes(call.inputs[1]));
    }
    EXPECT_EQ(different.size(), 16u);
  }
}

TEST(MakeCallsTest, TheSeedDecidesTheInputs) {
  const LoadEntry entry = {.kernel = "gelu", .shapes = {{64}}};
  EXPECT_EQ(Bytes(Make(entry, 5).calls[3].inputs[0]), Bytes(Make(entry, 5).calls[3].inputs[0]));
  EXPECT_NE(Bytes(Make(entry, 5).calls[3].inputs[0]), Bytes(Make(entry, 6).calls[3].inputs[0]));
}

TEST(MakeCallsTest, LargeInputsAreFewerButNeverOne) {
  EXPECT_EQ(Make({.kernel = "gelu", .shapes = {{5 << 20}}}).calls.size(), 3u);
  EXPECT_EQ(Make({.kernel = "gelu", .shapes = {{17 << 20}}}).calls.size(), 2u);
  EXPECT_EQ(Make({.kernel = "gelu", .shapes = {{0, 5}}}).calls.size(), 8u);
}

TEST(MakeCallsTest, CallsCarryTheEntrysOptions) {
  const auto made = Make({.kernel = "gelu",
                          .implementation = "manual",
                          .device = "cpu",
                          .attributes = {"approximate=none"},
                          .shapes = {{4}}});
  const client::Call& call = made.calls[0];
  EXPECT_EQ(call.kernel, "gelu");
  EXPECT_EQ(call.options.implementation, "manual");
  EXPECT_EQ(call.options.device, "cpu");
  EXPECT_EQ(std::get<std::string>(call.attributes.at("approximate")), "none");
  const auto wrong = MakeCalls({.kernel = "gelu", .attributes = {"axis"}, .shapes = {{4}}}, {}, 1);
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckAnswerTest, ElementwiseKernelsKeepShapeAndType) {
  for (const char* kernel : {"gelu", "softmax"}) {
    const auto made = Make({.kernel = kernel, .shapes = {{2, 3}}, .data_type = DataType::kFloat16});
    const client::Call& call = made.calls[0];
    EXPECT_TRUE(CheckAnswer(call, ResultWith(Output({2, 3}, DataType::kFloat16))).ok());
    const absl::Status shape = CheckAnswer(call, ResultWith(Output({3, 2}, DataType::kFloat16)));
    EXPECT_EQ(shape.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(shape.message(), HasSubstr("the shape 3x2 instead of 2x3"));
    const absl::Status type = CheckAnswer(call, ResultWith(Output({2, 3}, DataType::kBFloat16)));
    EXPECT_THAT(type.message(), HasSubstr("is bfloat16 instead of float16"));
  }
}

TEST(CheckAnswerTest, IdentityReturnsItsInput) {
  const auto made = Make({.kernel = "identity", .shapes = {{8}}});
  const client::Call& call = made.calls[0];
  EXPECT_TRUE(CheckAnswer(call, ResultWith(call.inputs[0])).ok());
  std::string bytes = Bytes(call.inputs[0]);
  bytes[13] ^= 1;
  const auto wrong = Tensor::Borrow(DataType::kFloat32, {8}, {bytes.data(), bytes.size()});
  const absl::Status status = CheckAnswer(call, ResultWith(wrong));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("from byte 13 on"));
}

TEST(CheckAnswerTest, MatmulHasTheShapeOfNumpysMatmul) {
  const struct {
    Shape a, b;
    std::vector<std::string> attributes;
    Shape c;
  } kCases[] = {
      {{2, 3}, {3, 4}, {}, {2, 4}},
      {{3, 2}, {3, 4}, {"transpose_a=true"}, {2, 4}},
      {{3, 2}, {4, 3}, {"transpose_a=true", "transpose_b=true"}, {2, 4}},
      {{2, 3}, {4, 3}, {"transpose_a=false", "transpose_b=1"}, {2, 4}},
      {{7, 2, 3}, {3, 4}, {}, {7, 2, 4}},
      {{3, 4}, {5, 1, 4, 6}, {}, {5, 1, 3, 6}},
      {{5, 1, 2, 3}, {7, 3, 4}, {}, {5, 7, 2, 4}},
      {{0, 2, 3}, {1, 3, 4}, {}, {0, 2, 4}},
      {{1, 2, 3}, {0, 3, 4}, {}, {0, 2, 4}},
  };
  std::vector<client::KernelInfo> kernels(1);
  kernels[0].name = "matmul";
  for (const char* name : {"transpose_a", "transpose_b"})
    kernels[0].attributes.push_back({name, "", false, {}});
  for (const auto& c : kCases) {
    const auto made = MakeCalls(
        {.kernel = "matmul", .attributes = c.attributes, .shapes = {c.a, c.b}}, kernels, 1);
    ASSERT_TRUE(made.ok()) << made.status();
    const client::Call& call = made->calls[0];
    EXPECT_TRUE(CheckAnswer(call, ResultWith(Output(c.c))).ok())
        << CheckAnswer(call, ResultWith(Output(c.c)));
    Shape more = c.c;
    more.back() += 1;
    EXPECT_FALSE(CheckAnswer(call, ResultWith(Output(more))).ok());
  }
}

TEST(CheckAnswerTest, AnswersThatCannotBeAreWrongToo) {
  const auto gelu = Make({.kernel = "gelu", .shapes = {{2}}});
  EXPECT_THAT(CheckAnswer(gelu.calls[0], {}).message(), HasSubstr("no output"));
  client::Result two = ResultWith(Output({2}));
  two.outputs.push_back(Output({2}));
  EXPECT_THAT(CheckAnswer(gelu.calls[0], two).message(), HasSubstr("2 outputs instead of 1"));
  for (const Shapes& shapes : {Shapes{{2, 2}}, Shapes{{2}, {2}}}) {
    const auto matmul = Make({.kernel = "matmul", .shapes = shapes});
    EXPECT_THAT(CheckAnswer(matmul.calls[0], ResultWith(Output({2, 2}))).message(),
                HasSubstr("not two matrices"));
  }
  const auto unknown = Make({.kernel = "unheard_of", .shapes = {{2}}});
  EXPECT_TRUE(CheckAnswer(unknown.calls[0], ResultWith(Output({9}))).ok());
  EXPECT_FALSE(CheckAnswer(unknown.calls[0], {}).ok());
}

}  // namespace
}  // namespace warpcall::cli
