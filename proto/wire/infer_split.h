// Splits the Open Inference Protocol's ModelInferRequest, as tensor_split.h does ExecuteRequest.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/wire/tensor_split.h"

namespace warpcall::wire {

// Splits the ModelInferRequest that lies in `fragments`: `raw_data` are its raw_input_contents, and
// `tensor_data` of each input the floats of its contents.fp32_contents, little-endian and in order.
// Accepts and refuses the same encodings as SplitTensors; other contents stay in the header and
// count against its limit.
absl::Status SplitInferRequest(absl::Span<const Bytes> fragments, SplitMessage* split);

// Appends to `out` the bytes before an output's data in a ModelInferResponse. The data must follow
// at once. All outputs' data, in order, end the message.
void AppendRawOutputPrefix(size_t data_bytes, std::string* out);

// Appends the bytes before a ModelInferResponse that ends a ModelStreamInferResponse.
void AppendStreamedResponsePrefix(size_t response_bytes, std::string* out);

}  // namespace warpcall::wire
