// Benchmark, Tune, Profile, Describe and Push between gRPC's bytes and the inspector: the server
// checks what is asked and chooses the device; the child process reads the same bytes again and
// answers.
#pragma once

#include <google/protobuf/message.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/multiply_adds.h"
#include "kernels/reads.h"
#include "server/inspect/inspector.h"
#include "server/judge/code.h"
#include "server/runtime/conditions.h"
#include "server/transport/request.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {

// In the server: reads a message into `request`, with every check of names, types, shapes and
// attributes, and chooses the device and, for a Profile or Describe, the row. Returns how many
// bytes of operands the child makes.
// A Benchmark's names in `bytes` are replaced by those of the variants that Execute would run now,
// which its child does not know.
absl::StatusOr<int64_t> ReadBenchmark(const ExecuteDeps& deps, std::string* bytes,
                                      Request* request);
// Each name stands for all of its variants. INVALID_ARGUMENT where results cannot be checked.
absl::StatusOr<int64_t> ReadTune(const ExecuteDeps& deps, const std::string& bytes,
                                 Request* request);
inline constexpr int kImplementationsMax = 64;
// INVALID_ARGUMENT names value and limit.
absl::Status CheckCount(absl::string_view name, int64_t value, int64_t max);
// INVALID_ARGUMENT for more than kImplementationsMax names, NOT_FOUND for one that `kernel` lacks.
absl::Status CheckImplementations(const Registry& registry, const Kernel& kernel,
                                  const google::protobuf::RepeatedPtrField<std::string>& names);
// PERMISSION_DENIED unless the policy allows the request's device and the named implementations.
// Without names it must allow all of the kernel's implementations: the child process chooses among
// them and knows no policy.
absl::Status CheckPolicyFor(const Registry& registry, const Request& request,
                            const google::protobuf::RepeatedPtrField<std::string>& names);
// Returns the time at which a child process stops measuring: early enough that its last launch can
// end and its answer arrive before the deadline.
int64_t MeasureUntil(int64_t deadline_ns, int64_t now_ns);

// Reads the request of a Tune, checks the policy for the implementations that it names, and returns
// the bytes of its operands.
absl::StatusOr<int64_t> ReadWithVariants(const ExecuteDeps& deps, const std::string& bytes,
                                         Request* request);
// "cuda" of "cuda:*".
absl::string_view WithoutStar(absl::string_view name);
absl::StatusOr<int64_t> ReadProfile(const ExecuteDeps& deps, const std::string& bytes,
                                    Request* request);
// Handles in `bytes` are replaced by the types and shapes of their tensors.
absl::StatusOr<int64_t> ReadDescribe(const ExecuteDeps& deps, std::string* bytes, Request* request);
// A manifest in which something is wrong is left to the child, whose verdict says what.
absl::StatusOr<int64_t> ReadPush(const ExecuteDeps& deps, const std::string& bytes,
                                 Request* request);
// The longest judging of a push, from when it leaves the queue to its verdict; also the longest
// timeout of a request.
inline constexpr int64_t kPushNsMax = 60'000'000'000;
inline constexpr int64_t kPushCodeBytesMax = int64_t{4} << 20;
// The longest message of a Push: code, manifest and problems.
inline constexpr int64_t kPushMessageBytesMax = kPushCodeBytesMax + (int64_t{256} << 10);
// Appends the row that the server chose to the message of a Profile or Describe, for its child.
// protobuf merges what follows in a message with what came before.
void AppendProfileChoice(const Request& request, std::string* bytes);
void AppendDescribeChoice(const Request& request, std::string* bytes);
// A Profile whose inputs are handles, after ReadProfile.
struct HandlesOfProfile {
  ExecuteDeps* deps;
  grpc::CallbackServerContext* context;
  const Request& request;
  const std::atomic<bool>& cancelled;
};
// Replaces the handles in its message by the bytes of the tensors, which its child cannot reach.
// Waits for the jobs that copy them, which have the key of the request: not for gRPC's threads.
absl::Status FetchResidents(const HandlesOfProfile& profile, std::string* bytes);

// Returns true if `peer`, named as by gRPC, calls from the server's own machine.
bool IsOnThisMachine(absl::string_view peer);

// PERMISSION_DENIED, naming the flag, if the caller has no access; `peer` is named as by gRPC.
absl::Status CheckInspectAccess(InspectAccess access, absl::string_view peer);

// PERMISSION_DENIED, naming the flag or the policy, if the caller may not push. REQUIRES: `request`
// was admitted.
absl::Status CheckPushAccess(const PushAccess& access, const Request& request,
                             absl::string_view peer);
// The first event of a push that so many inspections go before, serialised.
std::string QueuedEvent(int before);
// Counts what an event that the child sent says, and returns the verdict, empty in other events.
// `ns`: since the last one.
v1::PushVerdict RecordPushEvent(const std::string& bytes, int64_t ns, MetricsSink* metrics);

// Reads a request that holds no tensor data: INVALID_ARGUMENT for what protobuf cannot parse.
// REQUIRES: CheckMessageLengthOf its bytes was OK.
absl::Status ParseSmall(const std::string& bytes, google::protobuf::Message* request);

// Refuses what takes more memory for its operands than the flag or half the device's memory allows:
// RESOURCE_EXHAUSTED names value and limit. Waiting changes neither.
absl::Status CheckOperandBytes(const ExecuteDeps& deps, absl::string_view doing, int64_t bytes,
                               const Device& device);

// A Benchmark of next to nothing: what counts is the ceiling that is measured beside it.
inspect::Inquiry BandwidthInquiry(const std::string& device);

// In the server: has it learn what the serialised response to a Tune says of its problem. `device`
// is the one that it was measured on.
struct TuneSubject {
  int kernel = -1;
  const Problem& problem;
  const DeviceProperties& device;
};
void LearnFrom(const ExecuteDeps& deps, const TuneSubject& subject, const std::string& response);
// Why `row` was chosen: what DescribeResponse.chosen_because says. `tuned` may be null.
std::string WhyChosen(const Registry& registry, const Row& row, const TunedClass* tuned,
                      absl::string_view requested);
// KernelInfo.tuned of each kernel, for devices such as the server has.
void AddTuned(const ExecuteDeps& deps, v1::ListKernelsResponse* response);

// In the server: records the device's ceiling that a Benchmark's serialised response reports.
void SetBandwidthFrom(const std::string& response, int device, Engine* engine);
// Likewise the speed of multiply-adds of a kind, where the response has one.
void SetMultiplyAddsFrom(const std::string& response, int device, Arithmetic arithmetic,
                         Engine* engine);
// Device time of the measurements: the launches that a Benchmark or Tune timed, the kernels and
// copies of a Profile.
int64_t DeviceNsOf(Inspection kind, const std::string& response);
// Achieved occupancy of a Profile's kernels, weighted by their time; -1 if the response has none.
double AchievedOccupancy(const std::string& response);

// A benchmark request and the facts that a child process needs to answer it.
struct BenchmarkToAnswer {
  const std::string& bytes;           // the request
  int64_t deadline_ns = kNoDeadline;  // by MonotonicNs; the answer is ready shortly before
  std::string server_version = {};
  std::string cuda_version = {};          // empty on the CPU
  ConditionReader* conditions = nullptr;  // the device's; null: not known
  // For the device's kind; null: none is known.
  MultiplyAddsSource multiply_adds = nullptr;
  ReadsSource reads = nullptr;
  // Called with each response of partial results as it comes; the final answer then holds no
  // results. Null: the final answer holds all of them.
  std::function<void(const std::string&)> tell = nullptr;
};

// In the child: the serialised response to bytes that passed the checks above. `device` is the one
// that the server chose.
absl::StatusOr<std::string> AnswerBenchmark(const Registry& registry, Device* device,
                                            const BenchmarkToAnswer& benchmark);
absl::StatusOr<std::string> AnswerProfile(const Registry& registry, std::unique_ptr<Device> device,
                                          const std::string& bytes, absl::string_view traceparent);
absl::StatusOr<std::string> AnswerDescribe(const Registry& registry, Device* device,
                                           const std::string& bytes);

struct PushToAnswer {
  BenchmarkToAnswer benchmark;  // its `tell` gets the events but the verdict
  int64_t limit_ns = 0;         // as inspect::Inquiry's
  // As JudgeSite's, as the next two.
  DeviceProperties device;
  judge::CompileCode compile = nullptr;
  std::function<absl::StatusOr<judge::RunSite>()> open = nullptr;
  absl::Duration launch_time_max = absl::Seconds(2);
  // Called on another thread with the last event, the verdict on a launch that does not end. Does
  // not return.
  std::function<void(const std::string&)> give_up;
};
// The verdict's event. An error is the request's, or DEADLINE_EXCEEDED as JudgeCandidate's.
absl::StatusOr<std::string> AnswerPush(const Registry& registry, const PushToAnswer& push);

}  // namespace warpcall
