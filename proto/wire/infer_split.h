// As tensor_split.h, of the Open Inference Protocol's ModelInferRequest.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/wire/tensor_split.h"

namespace warpcall::wire {

// Splits the ModelInferRequest that lies in `fragments`: `raw_data` are its raw_input_contents, and
// `tensor_data` of each input the floats that it has as contents.fp32_contents, little-endian and
// in order. What it accepts and refuses is as for SplitTensors; other contents stay in the header
// and meet its limit.
absl::Status SplitInferRequest(absl::Span<const Bytes> fragments, SplitMessage* split);

// What stands before an output's data in a ModelInferResponse: appends it to `out`. The data must
// follow at once. All outputs' data, in order, end the message.
void AppendRawOutputPrefix(size_t data_bytes, std::string* out);

// What stands before a ModelInferResponse that a ModelStreamInferResponse holds and ends with.
void AppendStreamedResponsePrefix(size_t response_bytes, std::string* out);

}  // namespace warpcall::wire
