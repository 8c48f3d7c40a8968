// Where a request stands in its caller's distributed trace: W3C Trace Context
// (https://www.w3.org/TR/trace-context/), the header `traceparent` in its version 00.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall {

// The metadata key.
inline constexpr char kTraceparent[] = "traceparent";

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits in lower case, not all 0
  std::string parent_id;  // 16 likewise: the caller's span
  bool sampled = false;   // the caller records the trace
};

// Reads "00-<trace_id>-<parent_id>-<flags>". Nothing for any other text, which the specification
// wants to be taken as if it were not there.
std::optional<TraceContext> ParseTraceparent(absl::string_view text);

// The text that ParseTraceparent reads as `context`.
std::string ToTraceparent(const TraceContext& context);

}  // namespace warpcall
