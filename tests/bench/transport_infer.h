// ModelInfer of the Open Inference Protocol as the transport benchmark calls it, with one input and
// one output: the bytes that every server gets, and checks of its answer.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "absl/status/status.h"
#include "inference/grpc_service.pb.h"
#include "warpcall/call.h"

namespace warpcall::bench {

// A ModelInferRequest over the input's bytes, which outlive it: of the model KERNEL_fp32, as
// warpcalld calls the kernel in float32 and its peers do here.
grpc::ByteBuffer InferRequest(const client::Call& call);

// That request without the input's bytes, for the caller to append.
inference::ModelInferRequest InferHeader(const client::Call& call);

// DATA_LOSS unless `response` is a ModelInferResponse with one output, "y", of the input's type and
// shape: identity's with the same bytes, gelu's (tanh) with every element y of x within
// kGeluErrorMax * |x| of what float64 gives.
absl::Status CheckInferred(const client::Call& call, const grpc::ByteBuffer& response);
absl::Status CheckInferred(const client::Call& call, const inference::ModelInferResponse& response);

// NumPy's formula rounds some ten times, each by 2^-24 of at most |x|; the form by the error
// function, which is another kernel, differs by up to 4e-4.
inline constexpr double kGeluErrorMax = 1.0 / (1 << 20);

// Returns true if two ModelInferResponses, sliced in any way, end with the same `bytes`, those of
// the last output. Earlier fields may hold times.
bool SameOutput(const grpc::ByteBuffer& one, const grpc::ByteBuffer& other, size_t bytes);

}  // namespace warpcall::bench
