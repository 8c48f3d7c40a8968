#include "client/cpp/codec/graph_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/client/bytes.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EncodeGraphTest, EveryFieldReachesProtobuf) {
  const Tensor x = Tensor::FromFloats({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor empty = Tensor::FromFloats(DataType::kBFloat16, {0, 3}, {});
  const GraphRequest request = {
      .inputs = {{"x", x},
                 {"w", Tensor::FromHandle("0a")},
                 {"e", empty},
                 {"last", Tensor::FromHandle("0b")}},
      .steps = {{.name = "h",
                 .kernel = "linear",
                 .implementation = "cuda",
                 .inputs = {"x", "w", "x"},
                 .attributes = {{"activation", "gelu"}, {"axis", int64_t{-1}}}},
                {.name = "y", .kernel = "gelu", .inputs = {"h"}}},
      .outputs = {{.name = "y"},
                  {.name = "h", .keep = true, .ttl = absl::Seconds(3), .label = "a label"}},
      .device = "cuda:0",
      .request_id = "an id",
      .step_times = true};
  v1::ExecuteGraphRequest message;
  ASSERT_TRUE(message.ParseFromString(Bytes(EncodeGraph(request, nullptr))));
  ASSERT_EQ(message.inputs_size(), 4);
  EXPECT_EQ(message.inputs(0).name(), "x");
  EXPECT_EQ(message.inputs(0).tensor().data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_THAT(message.inputs(0).tensor().shape(), ElementsAre(2, 3));
  EXPECT_EQ(message.inputs(0).tensor().data(), Bytes(x));
  EXPECT_EQ(message.inputs(1).name(), "w");
  EXPECT_EQ(message.inputs(1).tensor().handle(), "0a");
  EXPECT_EQ(message.inputs(2).name(), "e");
  EXPECT_THAT(message.inputs(2).tensor().shape(), ElementsAre(0, 3));
  EXPECT_EQ(message.inputs(2).tensor().data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(message.inputs(3).tensor().handle(), "0b");
  ASSERT_EQ(message.steps_size(), 2);
  EXPECT_EQ(message.steps(0).name(), "h");
  EXPECT_EQ(message.steps(0).kernel(), "linear");
  EXPECT_EQ(message.steps(0).implementation(), "cuda");
  EXPECT_THAT(message.steps(0).inputs(), ElementsAre("x", "w", "x"));
  EXPECT_EQ(message.steps(0).attributes().at("activation").string_value(), "gelu");
  EXPECT_EQ(message.steps(0).attributes().at("axis").int_value(), -1);
  EXPECT_THAT(message.steps(1).inputs(), ElementsAre("h"));
  ASSERT_EQ(message.outputs_size(), 2);
  EXPECT_EQ(message.outputs(0).name(), "y");
  EXPECT_FALSE(message.outputs(0).keep());
  EXPECT_TRUE(message.outputs(1).keep());
  EXPECT_EQ(message.outputs(1).ttl_ns(), 3'000'000'000);
  EXPECT_EQ(message.outputs(1).label(), "a label");
  EXPECT_EQ(message.device(), "cuda:0");
  EXPECT_EQ(message.request_id(), "an id");
  EXPECT_TRUE(message.step_times());
}

TEST(EncodeGraphTest, TensorBytesAreNotCopied) {
  const Tensor owned = Tensor::FromFloats({2}, {1, 2});
  const char borrowed[4] = {};
  const auto borrowed_owner = std::make_shared<int>(0);
  const auto pieces = EncodeGraph(
      {.inputs = {{"a", owned}, {"b", Tensor::Borrow(DataType::kFloat32, {1}, borrowed)}}},
      borrowed_owner);
  bool found_owned = false, found_borrowed = false;
  for (const Piece& piece : pieces) {
    ASSERT_NE(piece.owner, nullptr) << "an attempt would copy this piece";
    if (piece.bytes.data() == owned.data().data()) found_owned = piece.owner == owned.owner();
    if (piece.bytes.data() == borrowed) found_borrowed = piece.owner == borrowed_owner;
  }
  EXPECT_TRUE(found_owned);
  EXPECT_TRUE(found_borrowed);
}

class DecodeGraphTest : public ::testing::Test {
 protected:
  DecodeGraphTest() {
    for (int i = 0; i < 3; ++i) {
      v1::Tensor* output = message_.add_outputs();
      output->set_data_type(v1::DATA_TYPE_FLOAT32);
      output->add_shape(i + 1);
      output->set_data(std::string(static_cast<size_t>(4 * (i + 1)), static_cast<char>('a' + i)));
    }
    message_.mutable_outputs(1)->clear_data();
    message_.mutable_outputs(1)->set_handle("0a");
  }

  absl::StatusOr<GraphResponse> Decode(size_t outputs = 3) const {
    const std::string bytes = message_.SerializeAsString();
    const absl::Span<const char> whole(bytes);
    const absl::Span<const char> fragments[] = {whole.subspan(0, 20), whole.subspan(20)};
    return DecodeGraph(fragments, outputs);
  }
  void ExpectInternal(const std::string& text, size_t outputs = 3) const {
    const auto response = Decode(outputs);
    EXPECT_EQ(response.status().code(), absl::StatusCode::kInternal) << text;
    EXPECT_THAT(response.status().message(), HasSubstr(text));
  }

  v1::ExecuteGraphResponse message_;
};

TEST_F(DecodeGraphTest, SentAndKeptOutputsStandInOrder) {
  const auto response = Decode();
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs.size(), 3u);
  EXPECT_EQ(response->outputs[0].data(), absl::MakeConstSpan("aaaa", 4));
  EXPECT_EQ(response->outputs[1].handle(), "0a");
  EXPECT_THAT(response->outputs[1].shape(), ElementsAre(2));
  EXPECT_EQ(response->outputs[2].data(), absl::MakeConstSpan("cccccccccccc", 12));
}

TEST_F(DecodeGraphTest, WhatContradictsItselfIsInternal) {
  ExpectInternal("3 outputs, of which 3 have data; the request has 2", 2);
  message_.mutable_outputs(0)->set_data("123");
  ExpectInternal("a float32 tensor of shape (1) has 3 bytes instead of 4");
  message_.mutable_outputs(0)->set_data("1234");
  message_.mutable_outputs(1)->set_data_type(v1::DATA_TYPE_UNSPECIFIED);
  ExpectInternal("unknown data type 0");
}

}  // namespace
}  // namespace warpcall::client
