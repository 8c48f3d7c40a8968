// One request, whatever its method: what it asks for, which implementation and device run it, and
// its outcome. Every path reaches Count, itself or by End, once.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "proto/wire/tensor_split.h"
#include "server/access/gate.h"
#include "server/access/principal.h"
#include "server/engine/engine.h"
#include "server/log/log.h"
#include "server/tracing/tracer.h"
#include "server/transport/call_codec.h"
#include "server/transport/execute_deps.h"
#include "server/transport/trace_context.h"

namespace warpcall {

// One call of a unary method, as gRPC hands it over. All three outlive the call's reactor.
struct Unary {
  grpc::CallbackServerContext* context;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;

  // The request's bytes, which the call may clear: gRPC would keep them until the call is over.
  grpc::ByteBuffer* message() const { return const_cast<grpc::ByteBuffer*>(request); }
};

// Bytes that a message may hold beside the tensor data that message_bytes_max allows: names,
// shapes, attributes and what it takes to encode them.
inline constexpr int64_t kMessageRestBytesMax = wire::kHeaderBytesMax;

// Bytes of the largest message.
inline int64_t MessageLengthMax(const ExecuteDeps& deps) {
  return deps.limits.message_bytes_max + kMessageRestBytesMax;
}

// Data of one chunk of a stream: as much as a window, so that a stream holds little more than its
// windows however the client cuts its tensors.
inline constexpr int64_t kChunkBytesMax = 16 << 20;
// Most bytes that a compressed message with a chunk may inflate to.
inline int64_t ChunkMessageBytesMax(const ExecuteDeps& deps) {
  return std::min(kChunkBytesMax + kMessageRestBytesMax, MessageLengthMax(deps));
}

// Refuses tensor data that do not fit a message: RESOURCE_EXHAUSTED names value and limit.
absl::Status CheckMessageBytes(const ExecuteDeps& deps, absl::string_view what, int64_t bytes);
// Name of all inputs' data together, for CheckMessageBytes.
inline constexpr char kInputsData[] = "the inputs' data";
// As CheckMessageBytes, for a whole message before it is parsed.
absl::Status CheckMessageLength(const ExecuteDeps& deps, int64_t bytes);

// INVALID_ARGUMENT for an id that is too long for log lines.
absl::Status CheckRequestId(absl::string_view id);

// Returns the deadline on the clock that reads `now_ns`; kNoDeadline if the client set none.
int64_t DeadlineNs(const grpc::CallbackServerContext& context, int64_t now_ns);

// Returns the call's final status, and sends the retry pushback if `status` has one.
grpc::Status EndOf(const absl::Status& status, grpc::CallbackServerContext* context);
// Adds a load report if the server sends them: once for each call that uses devices.
void AddLoadReport(const ExecuteDeps& deps, absl::StatusCode code,
                   grpc::CallbackServerContext* context);

// Finds the call's place in its caller's trace in the metadata. Searches them at each call, so that
// only calls that need the trace pay for the search.
std::optional<TraceContext> FindTraceContext(const grpc::CallbackServerContext& context);

// The level at which a call that ended with `status` is logged.
LogLevel LogLevelFor(const absl::Status& status);
// Returns true if the call gets its own log line; with log level debug, every call does.
bool HasLogLine(const ExecuteDeps& deps, const absl::Status& status, LogLevel level);
// Adds principal, where the caller has a name, and trace_id and parent_id, where the call has them.
void AppendCallFields(const grpc::CallbackServerContext& context,
                      const absl::StatusOr<Principal>& caller, std::vector<LogField>* fields);

class Request {
 public:
  // kTransfer: kCopyKernel copies a tensor to a device or back. No policy limits the kernel, and no
  // counter of requests counts it.
  enum class Kind : uint8_t { kKernel, kTransfer };

  // Begins a request that has just arrived from `caller` (see Identify). `context` outlives it.
  Request(ExecuteDeps* deps, grpc::CallbackServerContext* context, absl::StatusOr<Principal> caller,
          Kind kind = Kind::kKernel);

  // Reads everything but the problem and tensor data: finds the kernel and checks names.
  absl::Status ReadKernel(CallSpec spec);
  // REQUIRES: ReadKernel was OK, and the problem is of its kernel.
  void SetProblem(Problem problem);
  // Finds the row and the device that run each of `parts`: the request's problem, or the sizes in
  // which it is cut. Reserves memory for outputs that stay there. REQUIRES: it was read.
  absl::Status Choose(absl::Span<const Problem> parts);
  // Finds the next row and device for the request's problem after the chosen ones refused it with
  // `refusal`. Returns `refusal` itself if it is an error of another kind.
  absl::Status ChooseNext(const absl::Status& refusal);

  // Admits the request as a call of the service's `method`, until the request ends: see
  // Gate::Admit. `method` outlives the request.
  absl::Status Admit(absl::string_view method);
  // Counts `bytes` of the message against the caller's limit until the request ends.
  absl::Status Hold(int64_t bytes);
  // PERMISSION_DENIED if the caller may not use the device or one of `rows` (Row::ids).
  absl::Status CheckPolicy(absl::string_view device, absl::Span<const int> rows) const;
  // Returns true if the caller's policy lists the methods that it may call, and this one.
  bool IsNamedFor(absl::string_view method) const { return admission_.Names(method); }
  bool HasPolicy() const { return admission_.has_policy(); }
  // Moves the deadline to at most `ns` after the request's arrival.
  void LimitTime(int64_t ns);
  // Releases what the request holds of its caller's limits.
  void GiveBack() { admission_.GiveBack(); }

  // A job for `part` with key, row and device; the caller adds inputs, trace and callbacks. The
  // first job takes over the load that Choose counted for the device. Tells Pollers its bytes.
  std::unique_ptr<Job> NewJob(const Problem& part);

  // The tensors that are on the device or stay there, by operand, inputs first; null for other
  // operands. Empty if there are none, or once the request was counted.
  absl::Span<const ResidentContentPtr> residents() const { return residents_; }
  // Uses of the tensors that the client named, by input; may have fewer entries than inputs.
  absl::Span<const ResidentUse> uses() const { return uses_; }
  // Releases the request's tensors.
  void EndUses();
  bool keeps_outputs() const { return keep_outputs_ || !keeps_.empty(); }
  Kind kind() const { return kind_; }
  ResidentOwner owner() const { return {caller_->name, admission_.resident_bytes_max()}; }
  // Sets the digest of the outputs' content.
  void SetDigest(const Sha256& sha256);
  // Names the outputs that stay. Errors are those of Residents::Name. If a digest is set and the
  // same content is already there, the name goes to that content.
  absl::Status NameOutputs();
  bool existed() const { return existed_; }
  // Adds a name to the answer, for content that the request did not bring.
  void AddKept(Residents::Named named) { kept_.push_back(std::move(named)); }
  // Names by output, "" for one that does not stay; empty: none stays, or none was named.
  absl::Span<const Residents::Named> kept() const { return kept_; }
  // Ends the names in kept(), which the client has not yet received.
  void TakeBackOutputs();
  // Bytes of operands that were not sent over the network.
  int64_t resident_bytes() const;

  // `status`, with the name of the graph's step whose error it is.
  absl::Status NameStep(const absl::Status& status) const;

  // Adds a part of the request that has run to the request's trace.
  void TracePart(const RequestTrace& part);

  // Sets the trace's total_ns. Call it before the answer is made.
  void StopClock() { trace_.total_ns = deps_->clock() - start_ns_; }
  // Counts and logs the request, and releases its tensors.
  void Count(const absl::Status& end);
  // Adds the id by which the log names a failed request that gave none to the call's trailers.
  void TellId(const absl::Status& status) const;
  // As Count, for a request that ends its call: adds its id and the retry pushback to the call's
  // trailers. Returns the status for the client.
  grpc::Status End(const absl::Status& status);

  const absl::StatusOr<Principal>& caller() const { return caller_; }
  int64_t start_ns() const { return start_ns_; }
  const Kernel& kernel() const { return *kernel_; }
  // The implementation that the client named.
  const std::string& requested() const { return implementation_; }
  // The result of Choose.
  Candidate& chosen() { return chosen_; }
  // Family name of the implementation that runs the request. REQUIRES: Choose was OK.
  const char* implementation() const { return FamilyName(row().implementation.family); }
  const Row& row() const { return deps_->registry->rows()[static_cast<size_t>(trace_.row)]; }
  const std::string& device() const {
    return deps_->engine->device(trace_.device).properties().name;
  }
  const Problem& problem() const { return problem_; }
  const JobKey& key() const { return key_; }
  RequestTrace& trace() { return trace_; }
  // The client's ID, or else one that the server made.
  std::string request_id() const;

 private:
  absl::Status ReadResidents(CallSpec spec);
  absl::Status CheckGraphBytes() const;
  absl::Status ReserveOutputs();
  absl::Status CheckPolicy(const Kernel& kernel, absl::string_view implementation) const;
  Question ToQuestion() const;
  // Makes the chooser's result the implementation and device that run the request.
  absl::Status Take(absl::StatusOr<Candidate> found);
  // Warns if the float64 reference served the request although the client did not name it.
  void WarnOfReference() const;
  void WarnOfReference(const Kernel& kernel, const Row& row) const;
  // PERMISSION_DENIED for a kernel, a row or a device that the request names and its caller may not
  // use.
  absl::Status CheckPolicy() const;
  // Returns the status that the call counts as: DEADLINE_EXCEEDED if the client left because the
  // deadline passed.
  absl::Status Outcome(const absl::Status& status) const;
  void LogEnd(const absl::Status& status) const;
  void TraceEnd(const absl::Status& status);

  ExecuteDeps* const deps_;
  grpc::CallbackServerContext* const context_;
  const Kind kind_;
  const int64_t start_ns_;
  const absl::StatusOr<Principal> caller_;
  JobKey key_;
  const std::optional<tracing::Span> span_;  // none: the request is not traced
  absl::string_view method_;
  Admission admission_;
  std::string implementation_;  // as asked for, as device_name_
  std::string device_name_;
  std::string request_id_;  // empty: not given, or not known yet
  const Kernel* kernel_ = nullptr;
  Problem problem_;
  Chooser chooser_;
  Candidate chosen_;
  RequestTrace trace_;
  std::vector<ResidentUse> uses_;
  absl::InlinedVector<ResidentContentPtr, 3> residents_;
  bool keep_outputs_ = false;  // all of them, by keep_terms_
  Residents::Terms keep_terms_;
  std::vector<std::optional<Residents::Terms>> keeps_;  // by output; empty: none stays
  std::vector<StepQuestion> steps_;                     // of a graph
  std::vector<Residents::Named> kept_;
  bool existed_ = false;
};

}  // namespace warpcall
