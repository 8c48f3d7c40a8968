#include "client/cli/load/calls.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/inputs.h"
#include "proto/common/status_macros.h"
#include "warpcall/tensor.h"

namespace warpcall::cli {
namespace {

using client::Tensor;

constexpr int64_t kEntryBytesMax = 64 << 20;
constexpr int64_t kCallsMin = 2;
constexpr int64_t kCallsMax = 8;

bool AreMatrices(absl::Span<const Tensor> inputs) {
  return inputs.size() == 2 && inputs[0].shape().size() >= 2 && inputs[1].shape().size() >= 2;
}

// The shape of the product of matrices that the server took.
Shape MatmulShape(const client::Call& call) {
  const absl::Span<const int64_t> a = call.inputs[0].shape();
  const absl::Span<const int64_t> b = call.inputs[1].shape();
  const size_t rank = std::max(a.size(), b.size());
  Shape shape(rank, 1);
  // Aligned at their ends; a dimension of 1 takes the other's size.
  for (const absl::Span<const int64_t> input : {a, b})
    for (size_t i = 0; i + 2 < input.size(); ++i) {
      int64_t& dimension = shape[rank - input.size() + i];
      if (input[i] != 1) dimension = input[i];
    }
  shape[rank - 2] = a[a.size() - (BoolAttribute(call.attributes, "transpose_a") ? 1 : 2)];
  shape[rank - 1] = b[b.size() - (BoolAttribute(call.attributes, "transpose_b") ? 2 : 1)];
  return shape;
}

absl::Status Differs(const client::Call& call, const std::string& what) {
  return absl::DataLossError(absl::StrCat("the answer of ", call.kernel, " ", what));
}

}  // namespace

absl::StatusOr<LoadEntryCalls> MakeCalls(const LoadEntry& entry,
                                         absl::Span<const client::KernelInfo> kernels,
                                         uint64_t seed) {
  client::Call call{.kernel = entry.kernel,
                    .options = {.implementation = entry.implementation, .device = entry.device}};
  ASSIGN_OR_RETURN(call.attributes, ParseAttributes(entry.attributes, entry.kernel, kernels));
  int64_t call_bytes = 1;
  for (const Shape& shape : entry.shapes) {
    ASSIGN_OR_RETURN(const int64_t bytes, client::ByteCount(entry.data_type, shape));
    call_bytes += bytes;
  }
  LoadEntryCalls result{.entry = entry, .calls = {}};
  std::mt19937_64 random(seed);
  for (int64_t i = std::clamp(kEntryBytesMax / call_bytes, kCallsMin, kCallsMax); i > 0; --i) {
    call.inputs.clear();
    for (const Shape& shape : entry.shapes) {
      ASSIGN_OR_RETURN(Tensor input, RandomTensor({entry.data_type, shape},
                                                  Distribution::kAwayFromZero, &random));
      call.inputs.push_back(std::move(input));
    }
    result.calls.push_back(call);
  }
  return result;
}

absl::Status CheckAnswer(const client::Call& call, const client::Result& result) {
  if (result.outputs.empty()) return Differs(call, "has no output");
  const bool elementwise =
      call.kernel == "identity" || call.kernel == "gelu" || call.kernel == "softmax";
  if (!elementwise && call.kernel != "matmul") return absl::OkStatus();
  if (result.outputs.size() != 1)
    return Differs(call, absl::StrCat("has ", result.outputs.size(), " outputs instead of 1"));
  if (!elementwise && !AreMatrices(call.inputs))
    return Differs(call, "is OK, though its inputs are not two matrices");
  const Tensor& input = call.inputs[0];
  const Tensor& output = result.outputs[0];
  if (output.data_type() != input.data_type())
    return Differs(call, absl::StrCat("is ", DataTypeName(output.data_type()), " instead of ",
                                      DataTypeName(input.data_type())));
  const Shape shape =
      elementwise ? Shape(input.shape().begin(), input.shape().end()) : MatmulShape(call);
  if (output.shape() != absl::MakeConstSpan(shape))
    return Differs(call, absl::StrCat("has the shape ", absl::StrJoin(output.shape(), "x"),
                                      " instead of ", absl::StrJoin(shape, "x")));
  if (call.kernel != "identity" || output.data() == input.data()) return absl::OkStatus();
  const auto [sent, received] =
      std::mismatch(input.data().begin(), input.data().end(), output.data().begin());
  return Differs(
      call, absl::StrCat("differs from its input from byte ", sent - input.data().begin(), " on"));
}

}  // namespace warpcall::cli
