#include "tests/bench/transport_infer.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/wire/cursor.h"

namespace warpcall::bench {
namespace {

constexpr char kInputName[] = "x";
constexpr char kOutputName[] = "y";
constexpr char kType[] = "FP32";

// The last bytes of a ByteBuffer, slice by slice.
class Tail {
 public:
  // `bytes`: of the buffer at most.
  Tail(const grpc::ByteBuffer& buffer, size_t bytes) : skip_(buffer.Length() - bytes) {
    if (!buffer.Dump(&slices_).ok()) slices_.clear();
  }

  // Bytes that follow each other in memory; empty at the end.
  absl::Span<const uint8_t> Next() {
    while (slice_ < slices_.size() && skip_ >= slices_[slice_].size())
      skip_ -= slices_[slice_++].size();
    if (slice_ == slices_.size()) return {};
    return absl::MakeConstSpan(slices_[slice_].begin(), slices_[slice_].size()).subspan(skip_);
  }
  void Skip(size_t bytes) { skip_ += bytes; }

 private:
  std::vector<grpc::Slice> slices_;
  size_t slice_ = 0;
  size_t skip_;  // from the begin of slices_[slice_] on
};

double GeluOf(double x) {
  constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
  return 0.5 * x * (1 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
}

absl::Status CheckGelu(absl::Span<const char> sent, const std::string& received) {
  for (size_t at = 0; at < sent.size(); at += sizeof(float)) {
    float x, y;
    std::memcpy(&x, &sent[at], sizeof(x));
    std::memcpy(&y, &received[at], sizeof(y));
    const double expected = GeluOf(x);
    if (!(std::abs(y - expected) <= kGeluErrorMax * std::abs(x)))
      return absl::DataLossError(absl::StrCat("gelu's element ", at / sizeof(float), ", of ", x,
                                              ", is ", y, " instead of ", expected));
  }
  return absl::OkStatus();
}

bool IsShapedAs(const inference::ModelInferResponse& answer, const client::Tensor& input) {
  if (answer.outputs_size() != 1 || answer.raw_output_contents_size() != 1) return false;
  const auto& output = answer.outputs(0);
  return output.name() == kOutputName && output.datatype() == kType &&
         std::equal(output.shape().begin(), output.shape().end(), input.shape().begin(),
                    input.shape().end()) &&
         answer.raw_output_contents(0).size() == input.data().size();
}

}  // namespace

inference::ModelInferRequest InferHeader(const client::Call& call) {
  const client::Tensor& tensor = call.inputs[0];
  inference::ModelInferRequest request;
  request.set_model_name(call.kernel + "_fp32");
  inference::ModelInferRequest::InferInputTensor* const input = request.add_inputs();
  input->set_name(kInputName);
  input->set_datatype(kType);
  input->mutable_shape()->Assign(tensor.shape().begin(), tensor.shape().end());
  return request;
}

grpc::ByteBuffer InferRequest(const client::Call& call) {
  const client::Tensor& tensor = call.inputs[0];
  std::string header = InferHeader(call).SerializeAsString();
  wire::AppendVarint(
      wire::Tag(inference::ModelInferRequest::kRawInputContentsFieldNumber, wire::kLength),
      &header);
  wire::AppendVarint(tensor.data().size(), &header);
  const grpc::Slice slices[] = {
      grpc::Slice(header),
      grpc::Slice(tensor.data().data(), tensor.data().size(), grpc::Slice::STATIC_SLICE)};
  return grpc::ByteBuffer(slices, 2);
}

absl::Status CheckInferred(const client::Call& call, const grpc::ByteBuffer& response) {
  grpc::Slice whole;
  inference::ModelInferResponse answer;
  if (!response.DumpToSingleSlice(&whole).ok() ||
      !answer.ParseFromArray(whole.begin(), static_cast<int>(whole.size())))
    return absl::DataLossError("an answer is no ModelInferResponse");
  return CheckInferred(call, answer);
}

absl::Status CheckInferred(const client::Call& call, const inference::ModelInferResponse& answer) {
  const client::Tensor& input = call.inputs[0];
  if (!IsShapedAs(answer, input))
    return absl::DataLossError(absl::StrCat("an answer is not one tensor ", kOutputName, " of ",
                                            kType, " with ", input.data().size(),
                                            " bytes in the input's shape"));
  const std::string& received = answer.raw_output_contents(0);
  if (call.kernel == "gelu") return CheckGelu(input.data(), received);
  if (std::equal(received.begin(), received.end(), input.data().begin())) return absl::OkStatus();
  return absl::DataLossError("identity's answer differs from its request");
}

bool SameOutput(const grpc::ByteBuffer& one, const grpc::ByteBuffer& other, size_t bytes) {
  if (one.Length() < bytes || other.Length() < bytes) return false;
  Tail first(one, bytes), second(other, bytes);
  for (;;) {
    const absl::Span<const uint8_t> a = first.Next(), b = second.Next();
    const size_t common = std::min(a.size(), b.size());
    if (common == 0) return a.size() == b.size();
    if (std::memcmp(a.data(), b.data(), common) != 0) return false;
    first.Skip(common);
    second.Skip(common);
  }
}

}  // namespace warpcall::bench
