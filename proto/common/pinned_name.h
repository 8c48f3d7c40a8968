// Names that select one variant of an implementation, as requests and results of warpcall.v1 spell
// them.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// Returns "cuda:two_pass"; the implementation alone if no variant is known.
inline std::string PinnedName(absl::string_view implementation, absl::string_view variant) {
  return absl::StrCat(implementation, variant.empty() ? "" : ":", variant);
}

// For a message that says what ran: ExecuteResponse, BenchmarkResult, DescribeResponse.
template <typename Message>
auto PinnedName(const Message& message)
    -> decltype(PinnedName(message.implementation(), message.launch().variant())) {
  return PinnedName(message.implementation(), message.launch().variant());
}

}  // namespace warpcall
