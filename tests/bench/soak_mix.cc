#include "tests/bench/soak_mix.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/common/status_macros.h"
#include "proto/wire/tensor_split.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::bench {
namespace {

constexpr double kSmallElementsMin = 16;
constexpr double kSmallElementsMax = kSmallRequestBytesMax / sizeof(float);
constexpr double kLargeElementsMin = (1 << 20) / sizeof(float);
constexpr double kLargeElementsMax = kLargeRequestBytesMax / sizeof(float);

// Rows and columns of softmax; primes and tails among them.
constexpr std::array<int64_t, 2> kSmallSoftmax[] = {{1, 16},   {4, 64},    {3, 1000}, {16, 256},
                                                    {1000, 4}, {127, 129}, {64, 256}, {1, 16384}};
constexpr std::array<int64_t, 2> kLargeSoftmax[] = {{1024, 256},  {4099, 1021}, {4096, 1024},
                                                    {65536, 256}, {64, 131072}, {2048, 8192}};

// m, k, n of matmul: vectors, squares, and what no tile fits.
constexpr std::array<int64_t, 3> kSmallMatmul[] = {{1, 64, 64},   {8, 32, 16},   {16, 64, 32},
                                                   {1, 128, 100}, {127, 33, 65}, {64, 64, 64},
                                                   {96, 64, 80},  {32, 128, 64}};
constexpr std::array<int64_t, 3> kLargeMatmul[] = {
    {512, 512, 512}, {1, 4096, 1024}, {16, 4096, 1024}, {1021, 509, 257}, {256, 1024, 1024}};

absl::Status Wrong(const SoakRequest& request, const std::string& what) {
  return absl::DataLossError(absl::StrCat("a response of ", request.kernel, " with output shape ",
                                          absl::StrJoin(request.output_shape, "x"), " ", what));
}

bool SameBytes(const wire::FragmentedBytes& found, absl::Span<const char> expected) {
  for (const wire::Bytes& piece : found.pieces) {
    if (!std::equal(piece.begin(), piece.end(), expected.begin())) return false;
    expected.remove_prefix(piece.size());
  }
  return true;
}

}  // namespace

int64_t SoakRequest::InputBytes() const {
  size_t bytes = 0;
  for (const SoakInput& input : inputs) bytes += input.data.size();
  return static_cast<int64_t>(bytes);
}

grpc::ByteBuffer Encode(const SoakRequest& request, const std::string& device) {
  v1::ExecuteRequest header;
  header.set_kernel(request.kernel);
  header.set_device(device);
  std::string small = header.SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (const SoakInput& input : request.inputs) {
    wire::AppendTensorPrefix(wire::kExecuteRequestInputs,
                             {v1::DATA_TYPE_FLOAT32, input.shape, input.data.size()}, &small);
    slices.emplace_back(small);
    slices.emplace_back(input.data.data(), input.data.size(), grpc::Slice::STATIC_SLICE);
    small.clear();
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status CheckResponse(const SoakRequest& request, grpc::ByteBuffer* response, bool compare) {
  std::vector<grpc::Slice> slices;
  if (!response->Dump(&slices).ok()) return Wrong(request, "cannot be read");
  std::vector<wire::Bytes> fragments;
  for (const grpc::Slice& slice : slices)
    fragments.push_back({reinterpret_cast<const char*>(slice.begin()), slice.size()});
  wire::SplitMessage split;
  RETURN_IF_ERROR(wire::SplitTensors(fragments, wire::kExecuteResponseOutputs, &split));
  v1::ExecuteResponse header;
  if (!header.ParseFromString(split.header) || header.outputs_size() != 1)
    return Wrong(request, absl::StrCat("has ", header.outputs_size(), " outputs or no sense"));
  const v1::Tensor& output = header.outputs(0);
  if (output.data_type() != v1::DATA_TYPE_FLOAT32 ||
      !std::equal(output.shape().begin(), output.shape().end(), request.output_shape.begin(),
                  request.output_shape.end()))
    return Wrong(request, absl::StrCat("has shape ", absl::StrJoin(output.shape(), "x"),
                                       " and type ", output.data_type()));
  size_t bytes = sizeof(float);
  for (int64_t dim : request.output_shape) bytes *= static_cast<size_t>(dim);
  const wire::FragmentedBytes& data = split.tensor_data[0];
  if (data.size != bytes)
    return Wrong(request, absl::StrCat("has ", data.size, " bytes; expected ", bytes));
  if (compare && request.kernel == "identity" && !SameBytes(data, request.inputs[0].data))
    return Wrong(request, "differs from its input");
  return absl::OkStatus();
}

size_t SoakMix::Pick(size_t count) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(random_);
}

SoakInput SoakMix::Input(std::vector<int64_t> shape) {
  size_t elements = 1;
  for (int64_t dim : shape) elements *= static_cast<size_t>(dim);
  const size_t bytes = elements * sizeof(float);
  const size_t places = (data_.size() - bytes) / sizeof(float) + 1;
  return {std::move(shape), data_.subspan(Pick(places) * sizeof(float), bytes)};
}

SoakRequest SoakMix::Elementwise(const char* kernel, Size size) {
  const double min = size == Size::kSmall ? kSmallElementsMin : kLargeElementsMin;
  const double max = size == Size::kSmall ? kSmallElementsMax : kLargeElementsMax;
  // As many of each power of two.
  std::uniform_real_distribution<double> exponent(std::log(min), std::log(max));
  const auto elements = static_cast<int64_t>(std::clamp(std::exp(exponent(random_)), min, max));
  return {kernel, {Input({elements})}, {elements}};
}

SoakRequest SoakMix::Any(Size size) {
  constexpr size_t kKernels = 4;
  switch (Pick(kKernels)) {
    case 0:
      return Elementwise("identity", size);
    case 1:
      return Elementwise("gelu", size);
    case 2: {
      const auto& [rows, columns] = size == Size::kSmall
                                        ? kSmallSoftmax[Pick(std::size(kSmallSoftmax))]
                                        : kLargeSoftmax[Pick(std::size(kLargeSoftmax))];
      return {"softmax", {Input({rows, columns})}, {rows, columns}};
    }
    default: {
      const auto& [m, k, n] = size == Size::kSmall ? kSmallMatmul[Pick(std::size(kSmallMatmul))]
                                                   : kLargeMatmul[Pick(std::size(kLargeMatmul))];
      return {"matmul", {Input({m, k}), Input({k, n})}, {m, n}};
    }
  }
}

SoakRequest SoakMix::Small() { return Any(Size::kSmall); }

SoakRequest SoakMix::Large() { return Any(Size::kLarge); }

SoakRequest SoakMix::Largest() {
  const auto elements = static_cast<int64_t>(kLargeElementsMax);
  return {"identity", {Input({elements})}, {elements}};
}

}  // namespace warpcall::bench
