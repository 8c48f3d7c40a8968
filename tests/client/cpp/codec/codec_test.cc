#include "client/cpp/codec/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Result> Decode(const std::string& bytes) {
  const absl::Span<const char> fragment(bytes.data(), bytes.size());
  return DecodeResult({&fragment, 1});
}

std::string Response(v1::DataType type, std::vector<int64_t> shape, size_t bytes) {
  v1::ExecuteResponse response;
  v1::Tensor* output = response.add_outputs();
  output->set_data_type(type);
  for (const int64_t dimension : shape) output->add_shape(dimension);
  output->set_data(std::string(bytes, 'x'));
  return response.SerializeAsString();
}

std::string RefusalOf(const std::string& bytes) {
  const auto result = Decode(bytes);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  return std::string(result.status().message());
}

TEST(EncodeCallTest, TensorBytesAreNotCopied) {
  const Tensor owned = Tensor::FromFloats({2}, {1, 2});
  const char borrowed[4] = {};
  const auto borrowed_owner = std::make_shared<int>(0);
  const auto pieces = EncodeCall(
      {.kernel = "k", .inputs = {owned, Tensor::Borrow(DataType::kFloat32, {1}, borrowed)}},
      borrowed_owner);
  bool found_owned = false, found_borrowed = false;
  for (const Piece& piece : pieces) {
    ASSERT_NE(piece.owner, nullptr) << "an attempt would copy this piece";
    if (piece.bytes.data() == owned.data().data()) {
      found_owned = true;
      EXPECT_EQ(piece.owner, owned.owner());
    }
    if (piece.bytes.data() == borrowed) {
      found_borrowed = true;
      EXPECT_EQ(piece.owner, borrowed_owner);
    }
  }
  EXPECT_TRUE(found_owned);
  EXPECT_TRUE(found_borrowed);
}

TEST(EncodeCallTest, ACallWithoutInputsIsStillARequest) {
  std::string bytes;
  for (const Piece& piece : EncodeCall({.kernel = "k"}, nullptr))
    bytes.append(piece.bytes.data(), piece.bytes.size());
  v1::ExecuteRequest request;
  ASSERT_TRUE(request.ParseFromString(bytes));
  EXPECT_EQ(request.kernel(), "k");
}

TEST(DecodeResultTest, RefusesTensorsThatContradictThemselves) {
  EXPECT_THAT(RefusalOf(Response(v1::DATA_TYPE_FLOAT32, {2, 3}, 23)),
              HasSubstr("23 bytes instead of 24"));
  EXPECT_THAT(RefusalOf(Response(v1::DATA_TYPE_FLOAT32, {0, 3}, 4)), HasSubstr("instead of 0"));
  EXPECT_THAT(RefusalOf(Response(v1::DATA_TYPE_UNSPECIFIED, {1}, 4)), HasSubstr("data type 0"));
  EXPECT_THAT(RefusalOf(Response(static_cast<v1::DataType>(9), {1}, 4)), HasSubstr("data type 9"));
  EXPECT_THAT(RefusalOf(Response(v1::DATA_TYPE_FLOAT32, {-1}, 4)), HasSubstr("negative"));
  EXPECT_THAT(RefusalOf(Response(v1::DATA_TYPE_FLOAT32, {int64_t{1} << 40, int64_t{1} << 40}, 0)),
              HasSubstr("int64"));
}

std::string Outputs(int count) {
  v1::ExecuteResponse response;
  for (int i = 0; i < count; ++i) {
    response.add_outputs()->set_data_type(v1::DATA_TYPE_FLOAT32);
    response.mutable_outputs(i)->add_shape(0);
    response.mutable_outputs(i)->set_data("");
  }
  return response.SerializeAsString();
}

TEST(DecodeResultTest, RefusesNoOutputsAndMoreThanAnyKernelHas) {
  EXPECT_THAT(RefusalOf(Outputs(0)), HasSubstr("0 outputs; a kernel has 1 to 64"));
  EXPECT_THAT(RefusalOf(Outputs(65)), HasSubstr("65 outputs; a kernel has 1 to 64"));
  EXPECT_EQ(Decode(Outputs(64)).value().outputs.size(), 64u);
}

TEST(DecodeStreamHeaderTest, RefusesNoOutputsAndMoreThanAnyKernelHas) {
  const auto decode = [](const std::string& bytes) {
    const absl::Span<const char> fragment(bytes.data(), bytes.size());
    return DecodeStreamHeader({&fragment, 1});
  };
  EXPECT_EQ(decode(Outputs(0)).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(decode(Outputs(65)).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(decode(Outputs(64)).value().size(), 64u);
}

absl::StatusOr<ServingStatus> DecodeHealth(const std::string& bytes) {
  const absl::Span<const char> fragment(bytes.data(), bytes.size());
  return DecodeHealthResponse({&fragment, 1});
}

// Bytes by hand, from the definition of grpc.health.v1.
TEST(HealthCodecTest, EncodesTheService) {
  EXPECT_EQ(EncodeHealthRequest("ab"),
            "\x0A\x02"
            "ab");
}

TEST(HealthCodecTest, DecodesEveryStatus) {
  EXPECT_EQ(DecodeHealth("").value(), ServingStatus::kUnknown);
  EXPECT_EQ(DecodeHealth("\x08\x01").value(), ServingStatus::kServing);
  EXPECT_EQ(DecodeHealth("\x08\x02").value(), ServingStatus::kNotServing);
  EXPECT_EQ(DecodeHealth("\x08\x03").value(), ServingStatus::kServiceUnknown);
  EXPECT_EQ(DecodeHealth("\x08\x7F").value(), ServingStatus::kUnknown);
  EXPECT_EQ(DecodeHealth("\x12\x01x\x08\x01").value(), ServingStatus::kServing)
      << "unknown fields are skipped";
  EXPECT_FALSE(DecodeHealth("\x08").ok());
  EXPECT_FALSE(DecodeHealth("\x12\x05x").ok());
  EXPECT_FALSE(DecodeHealth("\x0F").ok());
}

}  // namespace
}  // namespace warpcall::client
