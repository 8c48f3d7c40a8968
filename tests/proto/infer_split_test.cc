#include "proto/wire/infer_split.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "inference/grpc_service.pb.h"
#include "proto/common/check.h"
#include "proto/wire/splitter.h"
#include "tests/proto/every_field.h"
#include "tests/proto/fragments.h"
#include "tests/proto/split_check.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {
namespace {

using inference::ModelInferRequest;
using testing::CompareInferWithProtobuf;
using testing::Field;
using testing::Length;

ModelInferRequest Sample() {
  ModelInferRequest request;
  request.set_model_name("matmul_fp32");
  request.set_id("an id");
  for (int i = 0; i < 2; ++i) {
    ModelInferRequest::InferInputTensor* const input = request.add_inputs();
    input->set_name(i == 0 ? "a" : "b");
    input->set_datatype("FP32");
    input->add_shape(2);
    input->add_shape(300);
    request.add_raw_input_contents(std::string(2400, static_cast<char>('a' + i)));
  }
  (*request.mutable_parameters())["transpose_a"].set_bool_param(true);
  (*request.mutable_parameters())["priority"].set_uint64_param(7);
  return request;
}

absl::Status Split(absl::string_view message, wire::SplitMessage* split) {
  const wire::Bytes whole(message.data(), message.size());
  return wire::SplitInferRequest(absl::MakeConstSpan(&whole, 1), split);
}

TEST(InferSplit, TakesRawContentsOutWithoutCopyingThem) {
  const std::string message = Sample().SerializeAsString();
  wire::SplitMessage split;
  ASSERT_TRUE(Split(message, &split).ok());
  ASSERT_EQ(split.raw_data.size(), 2u);
  ASSERT_EQ(split.raw_data[1].pieces.size(), 1u);
  const wire::Bytes data = split.raw_data[1].pieces[0];
  EXPECT_GE(data.data(), message.data());
  EXPECT_LE(data.data() + data.size(), message.data() + message.size());
  EXPECT_EQ(std::string(data.data(), data.size()), std::string(2400, 'b'));
  EXPECT_LT(split.header.size(), 200u);
}

TEST(InferSplit, TakesFloatsOutHoweverTheyAreEncoded) {
  const float values[] = {1.5f, -2, 3, 4};
  std::string floats(sizeof(values), '\0');
  std::memcpy(floats.data(), values, sizeof(values));
  const std::string one = Field(6, 5, floats.substr(0, 4));
  // Packed, alone, and in contents that are given twice, which protobuf merges.
  const std::string input = Length(5, Length(6, floats) + one) + Length(1, "x") + Length(5, one);
  wire::SplitMessage split;
  const std::string message = Length(5, input);
  ASSERT_TRUE(Split(message, &split).ok());
  ASSERT_EQ(split.tensor_data.size(), 1u);
  EXPECT_EQ(split.tensor_data[0].size, sizeof(values) + 8);
  for (uint32_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(CompareInferWithProtobuf(message, seed), "") << seed;
}

TEST(InferSplit, AgreesOnEveryTruncation) {
  ModelInferRequest request = Sample();
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(2);
  request.mutable_raw_input_contents(0)->resize(40);
  request.mutable_raw_input_contents(1)->resize(20);
  const std::string message = request.SerializeAsString();
  for (size_t bytes = 0; bytes <= message.size(); ++bytes)
    ASSERT_EQ(CompareInferWithProtobuf(absl::string_view(message).substr(0, bytes), bytes & 7), "")
        << bytes;
}

TEST(InferSplit, AgreesOnOrderRepetitionAndWhatIsMalformed) {
  const std::string input = Length(1, "x") + Length(2, "FP32") + Length(3, "\x02\x03");
  const std::string messages[] = {
      Length(7, "first") + Length(5, input) + Length(7, "") + Length(1, "gelu") + Length(7, "last"),
      Length(5, Length(5, "")) + Length(5, "") + Length(6, Length(1, "y")),
      Length(5, Length(5, Length(6, "123"))),     // no floats have three bytes
      Length(5, Length(5, Field(6, 5, "123"))),   // nor these
      Length(5, Length(5, Field(6, 0, "\x01"))),  // another wire type: unknown
      Length(5, Length(5, Length(7, "12345678") + Length(8, "b"))),
      Length(5, Field(5, 0, "\x01")) + Field(7, 0, "\x01"),
      Length(5, Length(5, Length(2, "\x01\x02") + Length(6, "1234") + Length(2, "\x03"))),
      Length(5, Field(5, 2, "\x09" + Length(6, "1234"))),  // longer than its input
      Length(7, "a") + Field(7, 2,
                             "\x05"
                             "abc"),     // longer than the message
      Length(5, Length(1, "\xff\xfe")),  // not UTF-8
  };
  for (const std::string& message : messages)
    for (uint32_t seed = 0; seed < 10; ++seed)
      EXPECT_EQ(CompareInferWithProtobuf(message, seed), "") << message << " seed " << seed;
}

TEST(InferSplit, EveryFieldOfTheContractComesThrough) {
  ModelInferRequest whole;
  testing::SetEveryField(&whole);
  wire::SplitMessage split;
  const std::string message = whole.SerializeAsString();
  ASSERT_TRUE(Split(message, &split).ok());
  ModelInferRequest header;
  ASSERT_TRUE(header.ParseFromString(split.header));
  whole.mutable_inputs(0)->mutable_contents()->clear_fp32_contents();
  whole.mutable_raw_input_contents(0)->clear();
  EXPECT_EQ(header.DebugString(), whole.DebugString());
}

TEST(InferSplit, RefusesWhatRepeatsWithoutBytesOfItsOwn) {
  std::string many_raw;
  std::string many_floats;
  for (size_t i = 0; i < wire::kHeaderBytesMax; ++i) {
    many_raw += Length(7, "");
    many_floats += Field(6, 5, "1234");
  }
  for (const std::string& message : {many_raw, Length(5, Length(5, many_floats))}) {
    wire::SplitMessage split;
    const absl::Status status = Split(message, &split);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(status.message(), ::testing::HasSubstr("65536"));
  }
}

TEST(InferSplit, WhatIsWrittenBeforeAnOutputEndsAMessage) {
  inference::ModelInferResponse response;
  response.set_id("an id");
  std::string bytes = response.SerializeAsString();
  for (const size_t size : {size_t{0}, size_t{300}}) {
    wire::AppendRawOutputPrefix(size, &bytes);
    bytes.append(size, 'y');
  }
  ASSERT_TRUE(response.ParseFromString(bytes));
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_EQ(response.raw_output_contents(0), "");
  EXPECT_EQ(response.raw_output_contents(1), std::string(300, 'y'));
}

TEST(SplitRules, FitTheDescriptors) {
  for (const wire::MessageRule* const rule :
       {&wire::kExecuteRequestRule, &wire::kExecuteResponseRule, &wire::kModelInferRequestRule,
        &wire::kExecuteGraphRequestRule, &wire::kExecuteGraphResponseRule, &wire::kPutHeaderRule})
    EXPECT_EQ(wire::FindMisfit(*rule), "");
  // FindMisfit finds wrong rules.
  constexpr wire::FieldRule kWrongNumber[] = {{6, wire::FieldRule::Kind::kEachBytes}};
  constexpr wire::FieldRule kSingular[] = {{7, wire::FieldRule::Kind::kBytes}};
  constexpr wire::FieldRule kNone[] = {{99, wire::FieldRule::Kind::kEachBytes}};
  for (const auto& fields : {kWrongNumber, kSingular, kNone}) {
    const wire::MessageRule rule = wire::RuleOf<ModelInferRequest>(absl::MakeConstSpan(fields, 1));
    EXPECT_NE(wire::FindMisfit(rule), "");
    wire::SplitMessage split;
    if (WARPCALL_DCHECK_IS_ON)
      EXPECT_DEATH(wire::Split({}, rule, &split).IgnoreError(), "FindMisfit");
  }
}

}  // namespace
}  // namespace warpcall
