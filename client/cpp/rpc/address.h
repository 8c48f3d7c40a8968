// Parses server addresses and explains failed connections. Internal to the library.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/common/http_proxy.h"

namespace warpcall::client {

// Port of an address that names none.
inline constexpr int kDefaultPort = 8470;

// `address` as gRPC takes it. A host, an IPv4 or an IPv6 address, the latter in brackets where a
// port follows; unix:/path; what begins with another of gRPC's schemes stays as it is.
// INVALID_ARGUMENT for what is none of these, and for a port out of range.
absl::StatusOr<std::string> ParseAddress(absl::string_view address);

// True when an address from ParseAddress may stand for several servers: a list, or a name behind a
// resolver scheme.
bool MayBeSeveral(absl::string_view address);

// True if all calls to the address go to one server, or to one front.
bool IsOneServer(absl::string_view address);

// `status`, unless it says that a connection to `address` never came about: then the same code and
// a sentence with the cause, which names the proxy where the connection goes through one.
absl::Status ExplainConnection(const absl::Status& status, absl::string_view address,
                               const std::optional<HttpProxy>& proxy = std::nullopt);

}  // namespace warpcall::client
