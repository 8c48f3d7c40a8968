// Authenticates calls, applies the policies of their principals and counts refusals.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/access/callers.h"
#include "server/access/policies.h"
#include "server/access/principal.h"

namespace warpcall {

// The reason why a call was refused: label `reason` of warpcall_auth_refusals_total.
enum class AuthRefusal : uint8_t {
  kNoToken,
  kWrongToken,
  kCertificate,
  kNoPolicy,  // neither a policy of its own nor a default
  kMethod,
  kKernel,
  kImplementation,
  kDevice,
  kRequestsInFlight,
  kBytesInFlight,
};
inline constexpr int kAuthRefusalCount = 10;
// "no_token", ...
const char* AuthRefusalName(AuthRefusal reason);

// The credentials that a call brings.
struct Credentials {
  absl::string_view peer;  // see PeerOf
  absl::string_view
      certificate;  // subject of the certificate that TLS has verified, written as RFC 2253 says
  absl::string_view authorization;  // first value of that metadata entry
  int authorizations = 0;           // number of those entries
};

class Gate;

// Permission for one call, by the policy in force when the call came. Move-only. The destructor
// gives back what it holds of the principal's limits.
class Admission {
 public:
  // Permits everything: no policy applies.
  Admission() = default;
  Admission(Admission&& other) noexcept { *this = std::move(other); }
  Admission& operator=(Admission&& other) noexcept;
  ~Admission() { GiveBack(); }

  // Gives back the request and the bytes. The policy stays: other threads may read it meanwhile.
  void GiveBack();

  double share() const { return policy_ == nullptr ? 1 : policy_->share; }
  int64_t resident_bytes_max() const {
    return policy_ == nullptr ? std::numeric_limits<int64_t>::max() : policy_->resident_bytes_max;
  }
  bool limits_implementations() const {
    return policy_ != nullptr && policy_->implementations.has_value();
  }
  bool limits_devices() const { return policy_ != nullptr && policy_->devices.has_value(); }
  bool has_policy() const { return policy_ != nullptr; }
  // Returns true if a policy lists the methods that are allowed, and this one.
  bool Names(absl::string_view method) const {
    return policy_ != nullptr && policy_->methods.has_value() &&
           policy_->methods->contains(method);
  }
  bool MayUseImplementation(absl::string_view name, absl::string_view family) const;
  bool MayUseDevice(absl::string_view name) const;

  // PERMISSION_DENIED, and counted, if the policy forbids it; the message lists what is allowed.
  absl::Status CheckKernel(absl::string_view name) const;
  absl::Status CheckImplementation(absl::string_view name, absl::string_view family) const;
  absl::Status CheckDevice(absl::string_view name) const;
  // Returns and counts PERMISSION_DENIED: the policy allows none of the implementations that fit.
  absl::Status NoneAllowed(absl::string_view why) const;

  // Holds `bytes` of the principal's limit. RESOURCE_EXHAUSTED, and counted, if that would exceed
  // it.
  absl::Status Hold(int64_t bytes);
  // Returns false if `bytes` exceed the principal's limit even with nothing else in flight.
  bool MayEverHold(int64_t bytes) const {
    return policy_ == nullptr || bytes <= policy_->bytes_in_flight_max;
  }

 private:
  friend class Gate;
  absl::Status Deny(AuthRefusal reason, absl::string_view what, absl::string_view name,
                    const Policy::Names& allowed) const;

  Gate* gate_ = nullptr;  // null: no policy applies
  Principal principal_;
  std::shared_ptr<const Policy> policy_;
  bool is_push_ = false;
  int64_t bytes_ = 0;  // held
};

// Thread-safe. Outlives what it admits.
class Gate {
 public:
  struct Options {
    const Callers* callers = nullptr;    // outlive the gate; null: no call needs a token
    bool asks_for_certificates = false;  // TLS verifies client certificates
    const Policies* policies = nullptr;  // outlive the gate; null: every call may do everything
  };
  explicit Gate(const Options& options) : options_(options) {}

  bool asks_for_certificates() const { return options_.asks_for_certificates; }

  // The principal is the certificate's subject, or else the token's name, or else the connection.
  // UNAUTHENTICATED, and counted, if the server requires a token and the call has no valid one,
  // even with a certificate.
  absl::StatusOr<Principal> Identify(const Credentials& shown);

  // Admits a call of `method`, which is in flight while the admission lives. PERMISSION_DENIED, and
  // counted, if the policy forbids the method; RESOURCE_EXHAUSTED if the principal already has as
  // many requests, or pushes, in flight as its policy allows.
  absl::StatusOr<Admission> Admit(const Principal& principal, absl::string_view method);

  // Number of calls admitted, or refused for their principal's limits, by Policy::label; calls
  // without a label under "". Lists every label of the policies; empty without policies.
  std::map<std::string, int64_t> calls_by_label() const;

  int64_t refusals(AuthRefusal reason) const {
    return refusals_[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
  }

 private:
  friend class Admission;
  // A principal's requests and bytes in flight.
  struct Use {
    int64_t requests = 0;
    int64_t pushes = 0;  // among them
    int64_t bytes = 0;
  };

  // Counts the refusal and returns `status`.
  absl::Status Refuse(AuthRefusal reason, absl::Status status);
  absl::Status TakeRequest(const Principal& principal, const Policy& policy, bool is_push);
  void CountCall(const std::string& label) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeBytes(const Principal& principal, const Policy& policy, int64_t bytes);
  void GiveBack(uint64_t principal, bool is_push, int64_t bytes);

  const Options options_;
  std::array<std::atomic<int64_t>, kAuthRefusalCount> refusals_{};
  mutable absl::Mutex mutex_;
  // By Principal::id. Holds only principals that have something in flight.
  absl::flat_hash_map<uint64_t, Use> in_flight_ ABSL_GUARDED_BY(mutex_);
  // Like counters, labels stay when policies change. After kLabelsMax labels, further ones count
  // under "".
  absl::flat_hash_map<std::string, int64_t> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
