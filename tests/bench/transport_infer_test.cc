// Checks that guard ModelInfer's answers before their times count.
#include "tests/bench/transport_infer.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "inference/grpc_service.pb.h"

namespace warpcall::bench {
namespace {

using ::testing::HasSubstr;

const std::vector<float> kValues = {-9.5f, -3, -0.75f, -1e-30f, 0, 0.5f, 2, 7};

client::Call CallOf(const std::string& kernel) {
  return {.kernel = kernel,
          .inputs = {client::Tensor::FromFloats({static_cast<int64_t>(kValues.size())}, kValues)}};
}

double Tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double Erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

inference::ModelInferResponse AnswerOf(const std::function<double(double)>& function) {
  inference::ModelInferResponse answer;
  answer.set_model_name("gelu_fp32");
  auto* const output = answer.add_outputs();
  output->set_name("y");
  output->set_datatype("FP32");
  output->add_shape(static_cast<int64_t>(kValues.size()));
  std::string* const raw = answer.add_raw_output_contents();
  for (const float x : kValues) {
    const auto y = static_cast<float>(function(x));
    raw->append(reinterpret_cast<const char*>(&y), sizeof(y));
  }
  return answer;
}

// Cuts `text` into slices of `bytes`.
grpc::ByteBuffer Sliced(const std::string& text, size_t bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < text.size(); at += bytes) slices.emplace_back(text.substr(at, bytes));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status Check(const std::string& kernel, const inference::ModelInferResponse& answer) {
  return CheckInferred(CallOf(kernel), Sliced(answer.SerializeAsString(), 7));
}

TEST(TransportInferTest, ARequestIsOneThatProtobufReads) {
  const client::Call call = CallOf("gelu");
  grpc::Slice whole;
  ASSERT_TRUE(InferRequest(call).DumpToSingleSlice(&whole).ok());
  inference::ModelInferRequest request;
  ASSERT_TRUE(request.ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
  EXPECT_EQ(request.model_name(), "gelu_fp32");
  ASSERT_EQ(request.inputs_size(), 1);
  EXPECT_EQ(request.inputs(0).name(), "x");
  EXPECT_EQ(request.inputs(0).datatype(), "FP32");
  EXPECT_THAT(request.inputs(0).shape(), ::testing::ElementsAre(8));
  ASSERT_EQ(request.raw_input_contents_size(), 1);
  const absl::Span<const char> data = call.inputs[0].data();
  EXPECT_EQ(request.raw_input_contents(0), std::string(data.begin(), data.end()));
}

TEST(TransportInferTest, IdentityIsTakenByItsBytes) {
  const auto same = [](double x) { return x; };
  EXPECT_TRUE(Check("identity", AnswerOf(same)).ok());
  inference::ModelInferResponse wrong = AnswerOf(same);
  wrong.mutable_raw_output_contents(0)->back() ^= 1;
  EXPECT_THAT(Check("identity", wrong).ToString(), HasSubstr("differs from its request"));
}

TEST(TransportInferTest, GeluIsTakenWithinFloat32sRounding) {
  EXPECT_TRUE(Check("gelu", AnswerOf(Tanh)).ok());
  EXPECT_TRUE(
      Check("gelu", AnswerOf([](double x) { return Tanh(x) + 0.9 * kGeluErrorMax * x; })).ok());
  const absl::Status far =
      Check("gelu", AnswerOf([](double x) { return Tanh(x) + 1.1 * kGeluErrorMax * x; }));
  EXPECT_THAT(far.ToString(), HasSubstr("gelu's element 0, of -9.5, is "));
  EXPECT_FALSE(Check("gelu", AnswerOf(Erf)).ok());
  EXPECT_FALSE(Check("gelu", AnswerOf([](double x) { return x == 7 ? NAN : Tanh(x); })).ok());
}

TEST(TransportInferTest, AnAnswerOfAnotherFormIsNone) {
  const auto changed = [](const std::function<void(inference::ModelInferResponse*)>& change) {
    inference::ModelInferResponse answer = AnswerOf(Tanh);
    change(&answer);
    return Check("gelu", answer).ToString();
  };
  const auto form = HasSubstr("is not one tensor y of FP32 with 32 bytes");
  EXPECT_THAT(changed([](auto* answer) { answer->mutable_outputs(0)->set_name("x"); }), form);
  EXPECT_THAT(changed([](auto* answer) { answer->mutable_outputs(0)->set_datatype("FP16"); }),
              form);
  EXPECT_THAT(changed([](auto* answer) { answer->mutable_outputs(0)->add_shape(1); }), form);
  EXPECT_THAT(changed([](auto* answer) { answer->mutable_raw_output_contents(0)->pop_back(); }),
              form);
  EXPECT_THAT(changed([](auto* answer) { answer->add_raw_output_contents(); }), form);
  EXPECT_THAT(CheckInferred(CallOf("gelu"), Sliced("\xff\xff\xff", 3)).ToString(),
              HasSubstr("is no ModelInferResponse"));
}

TEST(TransportInferTest, OutputsAreTheSameHoweverTheyAreCut) {
  const std::string text = "what a server said, in frames as they came";
  const size_t all = text.size();
  EXPECT_TRUE(SameOutput(Sliced(text, 5), Sliced(text, 8), all));
  EXPECT_TRUE(SameOutput(Sliced(text, 100), Sliced(text, 1), all));
  EXPECT_FALSE(SameOutput(Sliced(text, 5), Sliced(text, 8), all + 1));
  const std::string longer = "other times: " + text;
  EXPECT_TRUE(SameOutput(Sliced(longer, 5), Sliced(text, 8), all));
  EXPECT_FALSE(SameOutput(Sliced(longer, 5), Sliced("W" + text.substr(1), 8), all));
  EXPECT_FALSE(SameOutput(Sliced(longer, 5), Sliced(text.substr(0, all - 1) + "E", 8), all));
  EXPECT_TRUE(SameOutput(Sliced("", 5), Sliced(text, 5), 0));
}

}  // namespace
}  // namespace warpcall::bench
