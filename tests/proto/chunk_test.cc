#include "proto/wire/chunk.h"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/proto/every_field.h"
#include "tests/proto/fragments.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {
namespace {

using testing::Field;
using testing::Fragments;
using testing::Group;
using testing::Length;
using testing::Mutated;
using testing::Varint;
using wire::StreamMember;

std::string Joined(const wire::FragmentedBytes& bytes) {
  std::string joined(bytes.size, '\0');
  bytes.CopyTo(joined.data());
  return joined;
}

// Text of a message as protobuf reads the whole, or as we read it, with protobuf's parser for
// headers alone. Equal texts mean equal content; "refused" is a text too.
std::string ReadByProtobuf(const std::string& message) {
  v1::ExecuteStreamResponse whole;
  if (!whole.ParseFromString(message)) return "refused";
  whole.DiscardUnknownFields();
  return whole.ShortDebugString();
}

std::string ReadByUs(const std::string& message, uint32_t seed) {
  const Fragments fragments(message, seed);
  wire::StreamMessage split;
  if (!wire::SplitStreamResponse(fragments.spans(), &split).ok()) return "refused";
  v1::ExecuteStreamResponse read;
  wire::ChunkView view;
  switch (split.member) {
    case StreamMember::kNone:
      break;
    case StreamMember::kHeader:
      if (!read.mutable_header()->ParseFromString(Joined(split.payload))) return "refused";
      break;
    case StreamMember::kChunk:
      if (!wire::ParseChunk(split.payload.pieces, &view).ok()) return "refused";
      read.mutable_chunk()->set_input_index(view.input_index);
      read.mutable_chunk()->set_offset(view.offset);
      read.mutable_chunk()->set_data(Joined(view.data));
      break;
    case StreamMember::kDone:
      if (!read.mutable_done()->ParseFromString(Joined(split.payload))) return "refused";
      break;
  }
  read.DiscardUnknownFields();
  return read.ShortDebugString();
}

// REQUIRES: a malformed part, if any, lies in the last member.
void ExpectAgreement(const std::string& message) {
  const google::protobuf::LogSilencer silencer;
  const std::string expected = ReadByProtobuf(message);
  for (uint32_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(ReadByUs(message, seed), expected) << message << " cut with seed " << seed;
}

// Number of header, chunk and done members, whatever they hold.
int MembersIn(const std::string& message) {
  v1::ListKernelsRequest unknown;  // knows no fields
  if (!unknown.ParseFromString(message)) return 0;
  const auto& fields = unknown.GetReflection()->GetUnknownFields(unknown);
  std::set<int> members;
  for (int i = 0; i < fields.field_count(); ++i)
    if (fields.field(i).type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
        fields.field(i).number() <= 3)
      members.insert(fields.field(i).number());
  return static_cast<int>(members.size());
}

std::string ChunkMessage(int32_t index, int64_t offset, const std::string& data) {
  v1::ExecuteStreamResponse message;
  message.mutable_chunk()->set_input_index(index);
  message.mutable_chunk()->set_offset(offset);
  message.mutable_chunk()->set_data(data);
  return message.SerializeAsString();
}

std::string HeaderMessage() {
  v1::ExecuteStreamResponse message;
  v1::Tensor* output = message.mutable_header()->add_outputs();
  output->set_data_type(v1::DATA_TYPE_FLOAT16);
  output->add_shape(300);
  message.mutable_header()->set_device("cpu");
  return message.SerializeAsString();
}

std::string DoneMessage() {
  v1::ExecuteStreamResponse message;
  message.mutable_done()->set_implementation("row");
  message.mutable_done()->mutable_timing()->set_total_ns(1234567);
  return message.SerializeAsString();
}

TEST(ChunkTest, DataAreNotCopied) {
  const std::string message = ChunkMessage(1, 1 << 20, std::string(5000, 'd'));
  const wire::Bytes whole(message);
  wire::StreamMessage split;
  ASSERT_TRUE(wire::SplitStreamRequest({&whole, 1}, &split).ok());
  ASSERT_EQ(split.member, StreamMember::kChunk);
  wire::ChunkView chunk;
  ASSERT_TRUE(wire::ParseChunk(split.payload.pieces, &chunk).ok());
  EXPECT_EQ(chunk.input_index, 1);
  EXPECT_EQ(chunk.offset, 1 << 20);
  ASSERT_EQ(chunk.data.pieces.size(), 1u);
  EXPECT_EQ(chunk.data.pieces[0].data(), message.data() + message.size() - 5000);
  EXPECT_EQ(chunk.data.size, 5000u);
}

TEST(ChunkTest, PrefixMakesAChunkThatProtobufReads) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t offset : {int64_t{0}, int64_t{127}, int64_t{128}, int64_t{5} << 30, kMost}) {
    for (const int32_t index : {0, 1, 7, std::numeric_limits<int32_t>::max(), -1}) {
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{70'000}}) {
        const std::string data(bytes, 'd');
        std::string message;
        wire::AppendChunkPrefix({index, offset, bytes}, &message);
        message += data;
        v1::ExecuteStreamRequest request;
        ASSERT_TRUE(request.ParseFromString(message));
        ASSERT_TRUE(request.has_chunk());
        EXPECT_EQ(request.chunk().input_index(), index);
        EXPECT_EQ(request.chunk().offset(), offset);
        EXPECT_EQ(request.chunk().data(), data);
        v1::ExecuteStreamResponse response;
        ASSERT_TRUE(response.ParseFromString(message));
        EXPECT_EQ(response.chunk().data(), data);
      }
    }
  }
}

TEST(ChunkTest, AgreesOnOrderRepetitionAndUnknownFields) {
  const std::string index = Field(1, 0, Varint(3));
  const std::string offset = Field(2, 0, Varint(uint64_t{1} << 40));
  const std::string data = Length(3, "the data");
  const std::string group = Group(9, Group(10, Length(11, "in") + Field(1, 5, "1234")));
  const std::string messages[] = {
      "",
      ChunkMessage(-5, -6, "x"),
      Length(2, ""),
      Length(2, data + offset + index),
      Length(2, data + index + Length(3, "other") + Field(1, 0, Varint(0)) + offset),
      Length(2, data + Length(3, "")),
      Length(2, group + data + Length(15, "unknown") + Field(14, 1, "12345678") + offset + group),
      Length(2, Field(3, 0, "\x01") + Length(1, "text") + Field(2, 5, "1234") + data),
      Length(2, Field(1, 0, Varint(~uint64_t{0})) + Field(2, 0, Varint(uint64_t{1} << 63))),
      Length(2, Field(1, 0, Varint((uint64_t{1} << 32) + 7))),
      group + Field(2, 0, "\x01") + Length(7, "unknown") + HeaderMessage() + group,
  };
  for (const std::string& message : messages) ExpectAgreement(message);
}

TEST(ChunkTest, TheLastMemberCountsAndTheSameOneTwiceMerges) {
  const std::string chunk = ChunkMessage(1, 2, "first");
  const std::string later = Length(2, Field(2, 0, Varint(9)));
  const std::string messages[] = {
      chunk + later,                          // merged: offset 9, the data of the first
      chunk + Length(20, "unknown") + later,  // unknown fields do not come between
      later + chunk,
      HeaderMessage() + DoneMessage(),            // replaced
      HeaderMessage() + HeaderMessage(),          // merged: two outputs
      HeaderMessage() + chunk + HeaderMessage(),  // begun anew: one output
      DoneMessage() + HeaderMessage() + later,
      chunk + DoneMessage() + later,
  };
  for (const std::string& message : messages) ExpectAgreement(message);
}

// ParseChunk reads a chunk's fields by hand: one that is added to the contract must be taught to
// it.
TEST(ChunkTest, EveryFieldOfTheContractIsRead) {
  v1::Chunk whole;
  testing::SetEveryField(&whole);
  const std::string bytes = whole.SerializeAsString();
  const wire::Bytes span(bytes);
  wire::ChunkView chunk;
  ASSERT_TRUE(wire::ParseChunk(absl::MakeConstSpan(&span, 1), &chunk).ok());
  v1::Chunk read;
  read.set_input_index(chunk.input_index);
  read.set_offset(chunk.offset);
  read.mutable_data()->resize(chunk.data.size);
  chunk.data.CopyTo(read.mutable_data()->data());
  EXPECT_EQ(read.DebugString(), whole.DebugString());
  EXPECT_EQ(v1::ExecuteStreamRequest::descriptor()->field_count(), 2);   // StreamMember
  EXPECT_EQ(v1::ExecuteStreamResponse::descriptor()->field_count(), 3);  // StreamMember, and kDone
}

TEST(ChunkTest, DoneIsUnknownInRequests) {
  const std::string message = ChunkMessage(0, 0, "x") + DoneMessage();
  const wire::Bytes whole(message);
  wire::StreamMessage split;
  ASSERT_TRUE(wire::SplitStreamRequest({&whole, 1}, &split).ok());
  EXPECT_EQ(split.member, StreamMember::kChunk);
  ASSERT_TRUE(wire::SplitStreamResponse({&whole, 1}, &split).ok());
  EXPECT_EQ(split.member, StreamMember::kDone);
}

TEST(ChunkTest, AgreesOnMalformedMessages) {
  std::string nested, closing;
  for (int i = 0; i < 98; ++i) nested += Field(9, 3, ""), closing += Field(9, 4, "");
  const std::string messages[] = {
      std::string(1, '\0'),  // field number 0
      Field(9, 4, ""),       // end of a group that never began
      Field(2, 6, ""),
      Field(2, 7, ""),                 // wire types that do not exist
      Field(2, 2, Varint(5) + "abc"),  // longer than the message
      Length(2, Field(3, 2, Varint(5) + "abc")),
      Length(2, Field(1, 0, std::string(11, '\x80'))),
      Length(2, Field(2, 0, "\x80")),
      Length(2, Field(9, 3, "")),                               // a group left open
      Length(2, Field(9, 3, "")) + Field(9, 4, ""),             // closed outside
      Length(2, Field(9, 3, Field(10, 4, ""))),                 // closed by another
      Length(2, Field(9, 3, "")) + Length(2, Field(9, 4, "")),  // closed by the merged part
      Length(1, "\x0a") + Length(1, Varint(1) + "x"),           // cut off, continued by a merge
      Field(2, 2, "\xff\xff\xff\xff\x07"),
      Field(2, 2, "\xff\xff\xff\xff\x0f"),
      Length(2, nested + Group(9, "") + closing),            // 99 deep within a message
      Length(2, nested + Group(9, Group(9, "")) + closing),  // 100 deep: too many
      nested + Group(9, Group(9, "")) + closing,             // 100 deep outside
      nested + Group(9, Group(9, Group(9, ""))) + closing,
      Length(1, Length(2, "\xff\xfe")),  // not UTF-8
  };
  for (const std::string& message : messages) ExpectAgreement(message);
}

TEST(ChunkTest, AgreesOnEveryTruncation) {
  const google::protobuf::LogSilencer silencer;
  for (const std::string& message :
       {ChunkMessage(300, 1 << 20, "data"), HeaderMessage(), DoneMessage(),
        Length(2, Group(9, Length(4, "x"))) + ChunkMessage(1, 2, "3")})
    for (size_t bytes = 0; bytes <= message.size(); ++bytes)
      ASSERT_EQ(ReadByUs(message.substr(0, bytes), bytes & 7),
                ReadByProtobuf(message.substr(0, bytes)))
          << bytes << " bytes of " << message;
}

TEST(ChunkTest, AgreesOnMutatedMessages) {
  const google::protobuf::LogSilencer silencer;
  std::mt19937 random(testing::Seed());
  const std::string bases[] = {ChunkMessage(300, 70'000, "0123456789"), HeaderMessage(),
                               DoneMessage(), ChunkMessage(1, 2, "3") + ChunkMessage(4, 5, "67"),
                               Length(2, Group(9, Length(4, "x")) + Length(3, "data"))};
  int64_t accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    const std::string message = Mutated(bases[random() % std::size(bases)], random);
    const std::string expected = ReadByProtobuf(message);
    const std::string read = ReadByUs(message, random());
    accepted += expected != "refused";
    // The part that protobuf refuses may lie in a member that a later one replaced.
    if (expected == "refused" && MembersIn(message) > 1) continue;
    ASSERT_EQ(read, expected) << "round " << round;
  }
  EXPECT_GT(accepted, 10'000);
}

TEST(ChunkTest, RefusesMessagesOfTinyFields) {
  std::string tiny;
  while (tiny.size() <= wire::kHeaderBytesMax) tiny += Field(9, 0, "\x01");
  std::string members;
  for (int i = 0; i < 3; ++i) members += Length(2, tiny.substr(0, wire::kHeaderBytesMax / 2));
  std::string empty_members;
  while (empty_members.size() <= wire::kHeaderBytesMax) empty_members += Length(1, "");
  for (const std::string& message : {tiny, Length(2, tiny), members, empty_members}) {
    const wire::Bytes whole(message);
    wire::StreamMessage split;
    const absl::Status status = wire::SplitStreamRequest({&whole, 1}, &split);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), "65536")) << status;
  }
  const wire::Bytes payload(tiny);
  wire::ChunkView chunk;
  EXPECT_EQ(wire::ParseChunk({&payload, 1}, &chunk).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace warpcall
