#include "client/cpp/rpc/message.h"

#include <gtest/gtest.h>

#include <string>

namespace warpcall::client {
namespace {

absl::StatusCode CodeOf(grpc::StatusCode code, const std::string& message) {
  return ToStatus(grpc::Status(code, message)).code();
}

TEST(MessageTest, WhatIsBrokenOffOnItsWayIsUnavailable) {
  const struct {
    grpc::StatusCode code;
    const char* message;
  } said[] = {{grpc::StatusCode::UNKNOWN, "Stream removed"},
              {grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 0"},
              {grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 2"},
              {grpc::StatusCode::CANCELLED, "Received RST_STREAM with error code 8"}};
  for (const auto& [code, message] : said)
    EXPECT_EQ(CodeOf(code, message), absl::StatusCode::kUnavailable) << message;
}

TEST(MessageTest, OtherEndsStayWhatTheyAre) {
  EXPECT_TRUE(ToStatus(grpc::Status::OK).ok());
  // A server's own words, and errors of the protocol's that another attempt would meet again.
  EXPECT_EQ(CodeOf(grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 3"),
            absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(grpc::StatusCode::CANCELLED, "CANCELLED"), absl::StatusCode::kCancelled);
  EXPECT_EQ(CodeOf(grpc::StatusCode::NOT_FOUND, "Stream removed"), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(grpc::StatusCode::INTERNAL, "no Received RST_STREAM with error code 2"),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace warpcall::client
