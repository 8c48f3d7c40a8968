// Takes an encoded ExecuteRequest or ExecuteResponse apart without copying tensor bytes: what
// remains is a small message for protobuf's own parser, and the places where each tensor's data
// lie.
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

// The most that may remain once tensor data are taken out: names, shapes, attributes.
inline constexpr size_t kHeaderBytesMax = size_t{64} << 10;

struct SplitMessage {
  // The same message without any Tensor.data: parsed by protobuf it gives every other field exactly
  // as protobuf would have read it from the whole.
  std::string header;
  // Tensor.data of each element of the tensor field, in order. They point into `fragments`.
  absl::InlinedVector<FragmentedBytes, 2> tensor_data;
  // The data that such a message holds beside its tensors, each field in order: of a
  // ModelInferRequest only.
  absl::InlinedVector<FragmentedBytes, 2> raw_data;

  void Clear();
};

// Splits the ExecuteRequest or -Response that lies in `fragments`, whose field `tensor_field` is
// `repeated Tensor`.
// Accepts every encoding that protobuf accepts (any order, unknown fields, data given twice: the
// last counts) and refuses with INVALID_ARGUMENT what protobuf refuses at this level; the header's
// own fields are judged by the parser that reads it. A header over kHeaderBytesMax is
// INVALID_ARGUMENT too.
absl::Status SplitTensors(absl::Span<const Bytes> fragments, int tensor_field, SplitMessage* split);

// What stands before a tensor's data.
struct TensorPrefix {
  int data_type = 0;  // the wire's number
  absl::Span<const int64_t> shape;
  size_t data_bytes = 0;
};

// The reverse: appends to `out` the encoding of one Tensor as element of `tensor_field`, up to and
// without its data bytes, which must follow at once.
void AppendTensorPrefix(int tensor_field, const TensorPrefix& prefix, std::string* out);

}  // namespace warpcall::wire
