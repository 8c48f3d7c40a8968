// The parameters of the Open Inference Protocol's requests and tensors.
#pragma once

#include <google/protobuf/map.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "inference/grpc_service.pb.h"
#include "kernels/op.h"
#include "server/engine/clock.h"

namespace warpcall::oip {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

// Those of a request that are no kernel's attributes. Texts are the message's.
struct CallParameters {
  absl::string_view implementation;
  absl::string_view device;
  int64_t timeout_ns = kNoDeadline;  // from "timeout", in microseconds; 0: none
};

// INVALID_ARGUMENT for one of another type or out of range, for sequences, which kernels do not
// have, and for parameters of Triton's that are not known here. "priority" is without effect, as in
// Triton where a model has no levels of it.
absl::StatusOr<CallParameters> ReadCallParameters(const Parameters& parameters);

// The others, which must be the op's attributes; names are the message's. Numbers may come as any
// type that holds them, and as text, since some clients send nothing else. INVALID_ARGUMENT names
// the attribute and what it takes.
absl::StatusOr<std::vector<NamedAttribute>> ReadAttributes(const Parameters& parameters,
                                                           const Op& op);

// Where a tensor lies that is not in its message.
struct RegionUse {
  absl::string_view region;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Nothing when the tensor names no region. INVALID_ARGUMENT when size or offset are missing or
// negative.
absl::StatusOr<absl::optional<RegionUse>> ReadRegionUse(const Parameters& parameters);

// The handle of a tensor that is on the server; empty: the input has none. INVALID_ARGUMENT for an
// empty one.
absl::StatusOr<absl::string_view> ReadHandle(const Parameters& parameters);

// INVALID_ARGUMENT when an output is asked for as classes.
absl::Status CheckNoClassification(const Parameters& parameters);

}  // namespace warpcall::oip
