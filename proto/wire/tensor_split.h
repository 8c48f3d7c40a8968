// Splits an encoded request or response of Execute or ExecuteGraph, without copying tensor bytes,
// into a small message for protobuf's own parser and the places of each tensor's data. Keeps the
// order of the tensors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace warpcall::wire {

using Bytes = absl::Span<const char>;

// A byte string that lies in pieces, in order.
struct FragmentedBytes {
  absl::InlinedVector<Bytes, 2> pieces;
  size_t size = 0;

  void Append(Bytes piece);
  void Clear();
  // `destination` has room for `size` bytes.
  void CopyTo(void* destination) const;
};

// Field numbers that SplitTensors needs to know.
inline constexpr int kExecuteRequestInputs = 3;
inline constexpr int kExecuteResponseOutputs = 1;
inline constexpr int kExecuteGraphResponseOutputs = 1;

// Upper bound of the message without tensor data: names, shapes, attributes.
inline constexpr size_t kHeaderBytesMax = size_t{64} << 10;

struct SplitMessage {
  // The message without any Tensor.data: protobuf parses every other field from it exactly as from
  // the whole message.
  std::string header;
  // Tensor.data of each element of the tensor field, in order. They point into `fragments`.
  absl::InlinedVector<FragmentedBytes, 2> tensor_data;
  // Data beside the tensors, each field in order; only a ModelInferRequest has such
  // data.
  absl::InlinedVector<FragmentedBytes, 2> raw_data;

  void Clear();
};

// Splits the ExecuteRequest or -Response that lies in `fragments`, whose field `tensor_field` is
// `repeated Tensor`.
// Accepts every encoding that protobuf accepts (any order, unknown fields, data given twice:
// the last counts). INVALID_ARGUMENT if protobuf refuses the message at this level, or if the
// header exceeds kHeaderBytesMax. The parser that reads the header checks the header's own
// fields.
absl::Status SplitTensors(absl::Span<const Bytes> fragments, int tensor_field, SplitMessage* split);
// Likewise an ExecuteGraphRequest, whose inputs' tensors are the elements of `tensor_data`.
absl::Status SplitGraph(absl::Span<const Bytes> fragments, SplitMessage* split);
// Likewise an ExecuteGraphResponse, whose outputs are the elements of `tensor_data`.
absl::Status SplitGraphResponse(absl::Span<const Bytes> fragments, SplitMessage* split);
// Likewise a PutHeader, whose tensor's data are the one element of `tensor_data`.
absl::Status SplitPutHeader(absl::Span<const Bytes> fragments, SplitMessage* split);

// The fields before a tensor's data.
struct TensorPrefix {
  int data_type = 0;  // the wire's number
  absl::Span<const int64_t> shape;
  size_t data_bytes = 0;
  absl::Span<const char> handle = {};  // beside data only between processes of the server
};

// Appends to `out` an encoded message as (an element of) `field`; `more` bytes of it must follow at
// once.
void AppendMessage(int field, absl::Span<const char> message, size_t more, std::string* out);
// Appends to `out` the encoding of one Tensor as an element of `tensor_field`, except its data
// bytes, which must follow at once.
void AppendTensorPrefix(int tensor_field, const TensorPrefix& prefix, std::string* out);
// Likewise of an element of ExecuteGraphRequest.inputs.
void AppendGraphInputPrefix(absl::Span<const char> name, const TensorPrefix& prefix,
                            std::string* out);

}  // namespace warpcall::wire
