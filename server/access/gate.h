// Whom the server lets in, and as whom.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/access/callers.h"
#include "server/access/principal.h"

namespace warpcall {

// Why a call was kept out: the label `reason` of warpcall_auth_refusals_total.
enum class AuthRefusal : uint8_t { kNoToken, kWrongToken, kCertificate };
inline constexpr int kAuthRefusalCount = 3;
// "no_token", ...
const char* AuthRefusalName(AuthRefusal reason);

// What a call shows of who makes it.
struct Credentials {
  absl::string_view peer;  // as gRPC names it
  absl::string_view
      certificate;  // the subject, as RFC 2253 writes it, of one that TLS has verified
  absl::string_view authorization;  // of the metadata of that name the first
  int authorizations = 0;           // how many there are
};

// Thread-safe.
class Gate {
 public:
  struct Options {
    const Callers* callers = nullptr;    // outlive the gate; null: nobody needs a token
    bool asks_for_certificates = false;  // of clients: TLS verifies them
  };
  explicit Gate(const Options& options) : options_(options) {}

  bool asks_for_certificates() const { return options_.asks_for_certificates; }

  // The certificate's subject, or else the token's name, or else the connection. UNAUTHENTICATED,
  // and counted, for a call that lacks a token that counts where one is asked for, whatever its
  // certificate.
  absl::StatusOr<Principal> Identify(const Credentials& shown);

  int64_t refusals(AuthRefusal reason) const {
    return refusals_[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
  }

 private:
  // Returns `status`; counts it.
  absl::Status Refuse(AuthRefusal reason, absl::Status status);

  const Options options_;
  std::array<std::atomic<int64_t>, kAuthRefusalCount> refusals_{};
};

}  // namespace warpcall
