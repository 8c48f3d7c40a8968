// A protocol's part of a unary call: reads the request and writes the response. Everything in
// between is common to all protocols: server/transport/call.h.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/op.h"
#include "server/engine/chooser.h"
#include "server/engine/clock.h"
#include "server/engine/job.h"
#include "server/engine/metrics_sink.h"

namespace warpcall {

class Request;

// A request without its protocol's encoding. The texts belong to the message.
struct CallSpec {
  absl::string_view kernel;
  absl::string_view implementation;  // an implementation, a family, "auto"; empty: as "auto"
  absl::string_view device;          // empty: any
  absl::string_view request_id;      // empty: one is made up
  // Starts when the request was received; applies besides the deadline of the call.
  int64_t timeout_ns = kNoDeadline;
  // By input: tensors that are on a device. For others, uses of no tensor, or none at the end.
  std::vector<ResidentUse> residents = {};
  // The outputs stay on the device.
  bool keep_outputs = false;
  Residents::Terms keep_terms = {};
  // "input \"x\"", of a graph's inputs, for messages.
  std::vector<std::string> input_labels = {};
  // Of a graph, in place of a kernel and an implementation.
  std::vector<StepQuestion> steps = {};
  // Of a graph, by output: the terms of those that stay.
  std::vector<std::optional<Residents::Terms>> keeps = {};
};

using JobInputs = absl::InlinedVector<InputPieces, 2>;

// The codec of one call. Its methods are called in the order of declaration, each at most once. An
// error of any of them ends the call.
class CallCodec {
 public:
  virtual ~CallCodec() = default;

  // The service's method, as policies name it; outlives all calls.
  virtual const char* method() const = 0;
  // Sets the principal that calls.
  virtual void SetCaller(uint64_t) {}
  // Reads the message, and refers to its bytes until ReleaseInputs. INVALID_ARGUMENT if it is no
  // message of the protocol, RESOURCE_EXHAUSTED if it comes in too many pieces.
  virtual absl::Status Decode(const grpc::ByteBuffer& message) = 0;
  // Finds the owner's tensors that the message names by handle. NOT_FOUND as Residents::Use.
  virtual absl::Status FindResidents(Residents* residents, absl::string_view owner) = 0;
  virtual absl::StatusOr<CallSpec> Spec() = 0;
  // The problem of the op that the spec names, after checks of types, shapes and attributes.
  virtual absl::StatusOr<Problem> ToProblem(const Op& op) = 0;
  // Returns the pieces of the inputs' data, in the op's order. INVALID_ARGUMENT if their bytes are
  // not as many as the problem says.
  virtual absl::StatusOr<JobInputs> Inputs(const Op& op, const Problem& problem) = 0;
  // Releases the inputs; nothing reads them any more.
  virtual void ReleaseInputs() = 0;
  // The answer to a request that ran; gRPC sends from the buffers of `outputs`.
  virtual absl::Status Encode(Request* request, StagingBuffers outputs,
                              grpc::ByteBuffer* response) = 0;
  // The request has ended with `status`, and was counted. Called whatever became of it.
  virtual void RecordEnd(const RequestTrace&, const absl::Status&) {}
};

}  // namespace warpcall
