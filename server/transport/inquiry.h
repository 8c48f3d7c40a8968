// Benchmark, Profile and Describe between gRPC's bytes and the inspector: the server checks what is
// asked and chooses the device; the child process reads the same bytes again and answers.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/inspect/inspector.h"
#include "server/transport/request.h"

namespace warpcall {

// In the server: every check of names, types, shapes, attributes and limits. `id` is the request_id
// of a request that has none of its own.
absl::StatusOr<inspect::Inquiry> ToBenchmarkInquiry(const ExecuteDeps& deps, std::string bytes);
absl::StatusOr<inspect::Inquiry> ToProfileInquiry(const ExecuteDeps& deps, std::string bytes,
                                                  const std::string& id);
absl::StatusOr<inspect::Inquiry> ToDescribeInquiry(const ExecuteDeps& deps, std::string bytes);

// Reads a request that holds no tensor data: INVALID_ARGUMENT for what protobuf cannot parse or
// what is larger than a header may be.
absl::Status ParseSmall(const std::string& bytes, google::protobuf::Message* request);

// Refuses what takes more memory for its operands than the flag or half the device's memory allows:
// RESOURCE_EXHAUSTED names value and limit. Waiting changes neither.
absl::Status CheckOperandBytes(const ExecuteDeps& deps, absl::string_view doing, int64_t bytes,
                               const Device& device);

// A Benchmark of next to nothing: what counts is the ceiling that is measured beside it.
inspect::Inquiry BandwidthInquiry(const std::string& device);

// In the server: what a Benchmark's serialised response says of its device's ceiling.
void NoteBandwidthOf(const std::string& response, int device, Engine* engine);
// What a Profile's says of the kernels' achieved occupancy, weighted by their time; -1: nothing.
double AchievedOccupancy(const std::string& response);

// In the child: the serialised response to bytes that passed the checks above. `device` is the one
// that the server chose.
absl::StatusOr<std::string> AnswerBenchmark(const Registry& registry, Device* device,
                                            const std::string& bytes);
absl::StatusOr<std::string> AnswerProfile(const Registry& registry, std::unique_ptr<Device> device,
                                          const std::string& bytes, absl::string_view traceparent);
absl::StatusOr<std::string> AnswerDescribe(const Registry& registry, Device* device,
                                           const std::string& bytes);

}  // namespace warpcall
