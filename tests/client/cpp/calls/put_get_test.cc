// Put's and Get's messages, from a server that keeps to the protocol and from one that does not.
#include "client/cpp/calls/put_get.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/residence.h"
#include "client/cpp/rpc/retry.h"
#include "tests/client/bytes.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Tensor kTensor = Tensor::FromFloats({2, 3}, {1, 2, 3, 4, 5, 6});

absl::Status Handle(const google::protobuf::Message& message, StreamHandler* session) {
  const std::string bytes = message.SerializeAsString();
  const absl::Span<const char> fragment(bytes);
  return session->HandleMessage(absl::MakeConstSpan(&fragment, 1));
}

TEST(PutSessionTest, SendsTheHeaderThenTheBytes) {
  PutSession session(kTensor, EncodePutHeader(kTensor, {.device = "cpu", .label = "w"}), 16,
                     nullptr);
  v1::PutRequest request;
  ASSERT_TRUE(request.ParseFromString(Bytes(*session.NextMessage())));
  EXPECT_EQ(request.header().device(), "cpu");
  EXPECT_EQ(request.header().label(), "w");
  EXPECT_THAT(request.header().tensor().shape(), ElementsAre(2, 3));
  EXPECT_EQ(request.header().tensor().data(), "");
  std::string data;
  for (const size_t bytes : {16u, 8u}) {
    ASSERT_TRUE(request.ParseFromString(Bytes(*session.NextMessage())));
    EXPECT_EQ(request.chunk().offset(), static_cast<int64_t>(data.size()));
    EXPECT_EQ(request.chunk().data().size(), bytes);
    data += request.chunk().data();
  }
  EXPECT_EQ(data, Bytes(kTensor));
  EXPECT_TRUE(session.NextMessage()->empty());

  EXPECT_THAT(session.TakePlaced().status().ToString(), HasSubstr("without an answer"));
  v1::PutResponse response;
  EXPECT_THAT(Handle(response, &session).ToString(), HasSubstr("without a handle"));
  response.set_handle("0a");
  response.set_device("cpu");
  EXPECT_TRUE(Handle(response, &session).ok());
  EXPECT_THAT(Handle(response, &session).ToString(), HasSubstr("a second PutResponse"));
  EXPECT_EQ(session.TakePlaced()->handle, "0a");
}

class GetSessionTest : public ::testing::Test {
 protected:
  absl::Status Header() {
    v1::GetResponse response;
    response.mutable_header()->set_data_type(v1::DATA_TYPE_FLOAT32);
    response.mutable_header()->add_shape(6);
    return Handle(response, &session_);
  }
  absl::Status Chunk(int64_t offset, size_t bytes) {
    v1::GetResponse response;
    response.mutable_chunk()->set_offset(offset);
    response.mutable_chunk()->set_data(Bytes(kTensor).substr(static_cast<size_t>(offset), bytes));
    return Handle(response, &session_);
  }

  GetSession session_{EncodeGet("0a")};
};

TEST_F(GetSessionTest, AsksOnceAndPutsTheBytesInTheirPlaces) {
  v1::GetRequest request;
  ASSERT_TRUE(request.ParseFromString(Bytes(*session_.NextMessage())));
  EXPECT_EQ(request.handle(), "0a");
  EXPECT_TRUE(session_.NextMessage()->empty());
  EXPECT_THAT(session_.TakeTensor().status().ToString(), HasSubstr("without an answer"));
  ASSERT_TRUE(Header().ok());
  EXPECT_TRUE(Chunk(8, 16).ok());
  EXPECT_THAT(session_.TakeTensor().status().ToString(), HasSubstr("after 16 of the 24 bytes"));
  EXPECT_TRUE(Chunk(0, 8).ok());
  EXPECT_THAT(session_.TakeTensor()->ToFloats(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(GetSessionTest, WhatContradictsItselfIsInternal) {
  EXPECT_THAT(Chunk(0, 8).ToString(), HasSubstr("INTERNAL"));
  ASSERT_TRUE(Header().ok());
  EXPECT_THAT(Header().ToString(), HasSubstr("a second header"));
  EXPECT_TRUE(Chunk(0, 8).ok());
  EXPECT_THAT(Chunk(4, 8).ToString(), HasSubstr("twice"));
  v1::GetResponse beyond;
  beyond.mutable_chunk()->set_offset(20);
  beyond.mutable_chunk()->set_data("12345");
  EXPECT_THAT(Handle(beyond, &session_).ToString(), HasSubstr("a chunk of 5 bytes at offset 20"));
}

TEST(LostHandlesTest, AreReadFromTheTrailer) {
  const auto lost =
      LostHandles(WithLostHandles(absl::NotFoundError("gone"), "0a freed,0b evicted,0c"));
  ASSERT_EQ(lost.size(), 3u);
  EXPECT_EQ(lost[0].handle + lost[0].why, "0afreed");
  EXPECT_EQ(lost[1].handle + lost[1].why, "0bevicted");
  EXPECT_EQ(lost[2].handle + lost[2].why, "0c");
  EXPECT_TRUE(LostHandles(absl::NotFoundError("gone")).empty());
}

class ResidenceTest : public ::testing::Test {
 protected:
  static absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
  Residence residence_{"old", Residence::Source{kTensor, {}}};
};

TEST_F(ResidenceTest, OneThreadPutsAgainAndTheOthersUseIt) {
  EXPECT_EQ(residence_.BeginRenewal("old", nullptr, Soon()), Residence::Renewal::kMine);
  // Another waits for it, and not beyond its own deadline.
  EXPECT_EQ(residence_.BeginRenewal("old", nullptr, Soon()), Residence::Renewal::kNoTime);
  std::thread other([this] {
    EXPECT_EQ(residence_.BeginRenewal("old", nullptr, absl::InfiniteFuture()),
              Residence::Renewal::kDone);
  });
  residence_.EndRenewal("new");
  other.join();
  EXPECT_EQ(residence_.handle(), "new");
  EXPECT_TRUE(residence_.WasNamed("old"));
  EXPECT_FALSE(residence_.WasNamed("other"));
  EXPECT_EQ(residence_.BeginRenewal("new", nullptr, Soon()), Residence::Renewal::kTooSoon);
}

TEST_F(ResidenceTest, AFailureLeavesTheHandleAndCountsForTheMinute) {
  EXPECT_EQ(residence_.BeginRenewal("old", nullptr, Soon()), Residence::Renewal::kMine);
  residence_.EndRenewal("");
  EXPECT_EQ(residence_.handle(), "old");
  EXPECT_EQ(residence_.BeginRenewal("old", nullptr, Soon()), Residence::Renewal::kTooSoon);
}

TEST_F(ResidenceTest, WithoutASourceThereIsNone) {
  Residence kept("old", TensorSpec{DataType::kFloat32, {2}});
  EXPECT_EQ(kept.BeginRenewal("old", nullptr, Soon()), Residence::Renewal::kNoSource);
}

}  // namespace
}  // namespace warpcall::client
