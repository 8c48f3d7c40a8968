#include "proto/wire/tensor_split.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/proto/every_field.h"
#include "tests/proto/fragments.h"
#include "tests/proto/split_check.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {
namespace {

using testing::CompareGraphWithProtobuf;
using testing::ComparePutWithProtobuf;
using testing::CompareWithProtobuf;
using testing::Field;
using testing::Group;
using testing::Length;

v1::ExecuteRequest Sample() {
  v1::ExecuteRequest request;
  request.set_kernel("matmul");
  request.set_implementation("cpu");
  request.set_request_id("an id");
  for (int i = 0; i < 2; ++i) {
    v1::Tensor* tensor = request.add_inputs();
    tensor->set_data_type(v1::DATA_TYPE_FLOAT32);
    tensor->add_shape(2);
    tensor->add_shape(300);
    tensor->set_data(std::string(2400, static_cast<char>('a' + i)));
  }
  (*request.mutable_attributes())["transpose_a"].set_bool_value(true);
  (*request.mutable_attributes())["precision"].set_string_value("tf32");
  return request;
}

wire::SplitMessage Split(const std::string& message) {
  wire::SplitMessage split;
  const wire::Bytes whole(message);
  const absl::Status status =
      wire::SplitTensors(absl::MakeConstSpan(&whole, 1), wire::kExecuteRequestInputs, &split);
  EXPECT_TRUE(status.ok()) << status;
  return split;
}

TEST(TensorSplit, TakesDataOutWithoutCopyingIt) {
  const std::string message = Sample().SerializeAsString();
  const wire::SplitMessage split = Split(message);
  ASSERT_EQ(split.tensor_data.size(), 2u);
  ASSERT_EQ(split.tensor_data[1].pieces.size(), 1u);
  const char* data = split.tensor_data[1].pieces[0].data();
  EXPECT_GE(data, message.data());
  EXPECT_LT(data, message.data() + message.size());
  EXPECT_EQ(std::string(data, 2400), std::string(2400, 'b'));
  EXPECT_LT(split.header.size(), 200u);
}

TEST(TensorSplit, AgreesOnEveryTruncation) {
  const std::string message = Sample().SerializeAsString().substr(0, 400);
  for (size_t bytes = 0; bytes <= message.size(); ++bytes)
    ASSERT_EQ(CompareWithProtobuf(absl::string_view(message).substr(0, bytes), bytes & 7), "")
        << bytes;
}

TEST(TensorSplit, AgreesOnOrderRepetitionAndUnknownFields) {
  const std::string tensor = Field(1, 0, "\x01") + Length(2, "\x02\x03") + Length(3, "abcdef");
  const std::string shuffled = Length(3, "first") + Length(3, "last") + Field(2, 0, "\x05") +
                               Field(1, 0, "\x02") + Field(1, 0, "\x03") + Length(2, "\x07");
  const std::string entry = Length(1, "axis") + Length(2, Field(2, 0, "\x01"));
  const std::string group = Group(9, Group(10, Length(11, "in")));
  const std::string messages[] = {
      Length(3, tensor) + Length(1, "gelu") + Length(3, shuffled) + Length(1, "softmax"),
      Length(6, "id") + Length(4, entry) + Length(4, entry) + Length(3, ""),
      group + Length(3, tensor + group) + Length(15, "unknown") + Field(14, 5, "1234"),
      Length(3, Length(4, "unknown") + Field(3, 0, "\x01") + Field(3, 1, "12345678") + tensor),
      Field(3, 0, "\x01") + Field(1, 5, "1234") + Length(3, tensor),
      Length(4, Length(2, Field(1, 0, "\x01")) + Length(1, "k") + Length(2, Field(2, 0, "\x01"))),
  };
  for (const std::string& message : messages)
    for (uint32_t seed = 0; seed < 20; ++seed)
      EXPECT_EQ(CompareWithProtobuf(message, seed), "") << message << " cut with seed " << seed;
  EXPECT_EQ(Split(messages[0]).tensor_data[1].pieces[0], wire::Bytes("last", 4));
}

TEST(TensorSplit, AgreesOnMalformedMessages) {
  const std::string varint_11(11, '\x80');
  const std::string messages[] = {
      std::string(1, '\0'),  // field number 0
      Field(3, 4, ""),       // end of a group that never began
      Field(3, 6, ""),
      Field(3, 7, ""),  // wire types that do not exist
      Field(3, 2,
            "\x05"
            "abc"),  // longer than the message
      Length(3, Field(3, 2,
                      "\x05"
                      "abc")),                         // longer than the tensor
      Field(9, 3, Field(9, 3, "") + Field(9, 4, "")),  // group left open
      Field(9, 3, Field(10, 4, "")),                   // group closed by another
      Length(3, Field(9, 3, "")) + Field(9, 4, ""),    // group that leaves its tensor
      Field(1, 0, varint_11),
      Field(3, 2, "\xff\xff\xff\xff\x07"),  // 2 GiB - 1
      Field(3, 2, "\xff\xff\xff\xff\x0f"),  // more than 31 bits
      Length(1, "\xff\xfe"),                // not UTF-8
  };
  for (const std::string& message : messages)
    EXPECT_EQ(CompareWithProtobuf(message, 0), "") << message;
}

// Fields that are added to the contract must come through, whatever their number.
template <typename Message>
void ExpectEveryFieldComesThrough(int tensor_field) {
  Message whole;
  testing::SetEveryField(&whole);
  const std::string bytes = whole.SerializeAsString();
  wire::SplitMessage split;
  const wire::Bytes span(bytes);
  ASSERT_TRUE(wire::SplitTensors(absl::MakeConstSpan(&span, 1), tensor_field, &split).ok());
  ASSERT_EQ(split.tensor_data.size(), 1u);
  Message header;
  ASSERT_TRUE(header.ParseFromString(split.header));
  const google::protobuf::FieldDescriptor& tensors =
      *Message::descriptor()->FindFieldByNumber(tensor_field);
  auto* const tensor =
      static_cast<v1::Tensor*>(whole.GetReflection()->MutableRepeatedMessage(&whole, &tensors, 0));
  EXPECT_EQ(split.tensor_data[0].size, tensor->data().size());
  tensor->clear_data();
  EXPECT_EQ(header.DebugString(), whole.DebugString());
  for (int i = 0; i < Message::descriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *Message::descriptor()->field(i);
    EXPECT_TRUE(field.is_repeated() ? header.GetReflection()->FieldSize(header, &field) > 0
                                    : header.GetReflection()->HasField(header, &field))
        << field.full_name();
  }
}

TEST(TensorSplit, EveryFieldOfTheContractComesThrough) {
  ExpectEveryFieldComesThrough<v1::ExecuteRequest>(wire::kExecuteRequestInputs);
  ExpectEveryFieldComesThrough<v1::ExecuteResponse>(wire::kExecuteResponseOutputs);
}

TEST(TensorSplit, AgreesOnAGraph) {
  v1::ExecuteGraphRequest graph;
  v1::GraphStep& step = *graph.add_steps();
  step.set_name("h");
  step.set_kernel("gelu");
  step.add_inputs("x");
  graph.add_outputs()->set_name("h");
  graph.add_inputs()->set_name("x");
  *graph.mutable_inputs(0)->mutable_tensor() = Sample().inputs(0);
  graph.add_inputs()->set_name("no_tensor");
  const std::string whole = graph.SerializeAsString();
  // protobuf merges a tensor that an input has twice.
  std::string input = graph.inputs(0).SerializeAsString();
  const std::string twice = Length(1, input + Length(2, Length(3, "abc")));
  for (const std::string& message : {whole, whole + whole, twice, whole + twice, std::string()})
    for (size_t end = 0; end <= message.size(); end += end + 40 < message.size() ? 40 : 1)
      EXPECT_EQ(CompareGraphWithProtobuf(message.substr(0, end), static_cast<uint32_t>(end)), "")
          << end;
  const wire::Bytes bytes(whole);
  wire::SplitMessage split;
  ASSERT_TRUE(wire::SplitGraph(absl::MakeConstSpan(&bytes, 1), &split).ok());
  ASSERT_EQ(split.tensor_data.size(), 2u);
  EXPECT_EQ(split.tensor_data[0].size, 2400u);
  EXPECT_EQ(split.tensor_data[1].size, 0u);
  EXPECT_LT(split.header.size(), 200u);
}

// Its tensor is no element of a list: given several times it is merged, and the last data count.
TEST(TensorSplit, AgreesOnAPutHeader) {
  v1::PutHeader header;
  header.set_label("w1");
  header.set_sha256(std::string(32, 's'));
  header.set_evictable(true);
  const std::string bare = header.SerializeAsString();
  *header.mutable_tensor() = Sample().inputs(0);
  const std::string whole = header.SerializeAsString();
  v1::PutHeader shape_alone;
  shape_alone.mutable_tensor()->add_shape(7);
  for (const std::string& message : {bare, whole, whole + whole, whole + bare,
                                     whole + shape_alone.SerializeAsString(), std::string()})
    for (size_t end = 0; end <= message.size(); end += end + 40 < message.size() ? 40 : 1)
      EXPECT_EQ(ComparePutWithProtobuf(message.substr(0, end), static_cast<uint32_t>(end)), "")
          << end;
  const wire::Bytes bytes(whole);
  wire::SplitMessage split;
  ASSERT_TRUE(wire::SplitPutHeader(absl::MakeConstSpan(&bytes, 1), &split).ok());
  ASSERT_EQ(split.tensor_data.size(), 1u);
  EXPECT_EQ(split.tensor_data[0].size, 2400u);
  EXPECT_LT(split.header.size(), 200u);
}

TEST(TensorSplit, RefusesHeadersOverTheLimit) {
  v1::ExecuteRequest request = Sample();
  request.set_kernel(std::string(wire::kHeaderBytesMax + 1, 'k'));
  const std::string long_name = request.SerializeAsString();
  std::string many_empty_fields;
  for (size_t i = 0; i < wire::kHeaderBytesMax; ++i) many_empty_fields += Length(3, "");
  for (const std::string& message : {long_name, many_empty_fields}) {
    wire::SplitMessage split;
    const wire::Bytes whole(message);
    const absl::Status status =
        wire::SplitTensors(absl::MakeConstSpan(&whole, 1), wire::kExecuteRequestInputs, &split);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("65536"), absl::string_view::npos) << status;
    EXPECT_LT(split.header.capacity(), 4 * wire::kHeaderBytesMax);
  }
}

TEST(TensorSplit, StepsOverLargeUnknownFields) {
  v1::ExecuteRequest request = Sample();
  std::string message = request.SerializeAsString();
  message += Field(15, 2, std::string("\x80\x80\x40", 3)) + std::string(1 << 20, 'x');
  EXPECT_LT(Split(message).header.size(), 200u);
  EXPECT_EQ(CompareWithProtobuf(message, 0), "");
}

TEST(TensorSplit, PrefixMakesATensorThatProtobufReads) {
  const std::string data = "payload";
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{7}, {}, {0}, {-1, int64_t{1} << 62, 3, 4, 5, 6, 7, 8}}) {
    std::string message;
    wire::AppendTensorPrefix(wire::kExecuteRequestInputs, {3, shape, data.size()}, &message);
    message += data;
    v1::ExecuteRequest request;
    ASSERT_TRUE(request.ParseFromString(message));
    ASSERT_EQ(request.inputs_size(), 1);
    EXPECT_EQ(request.inputs(0).data(), data);
    EXPECT_EQ(request.inputs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
    EXPECT_EQ(
        std::vector<int64_t>(request.inputs(0).shape().begin(), request.inputs(0).shape().end()),
        shape);
  }
}

}  // namespace
}  // namespace warpcall
