// Whom the server lets in, as whom, and to do what.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
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

// Why a call was kept out: the label `reason` of warpcall_auth_refusals_total.
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

// What a call shows of who makes it.
struct Credentials {
  absl::string_view peer;  // see PeerOf
  absl::string_view
      certificate;  // the subject, as RFC 2253 writes it, of one that TLS has verified
  absl::string_view authorization;  // of the metadata of that name the first
  int authorizations = 0;           // how many there are
};

class Gate;

// The leave to make one call, by the policy that was in force when it came. Move-only; gives back
// what it holds of its principal's limits when it goes.
class Admission {
 public:
  // To whom no policy applies.
  Admission() = default;
  Admission(Admission&& other) noexcept { *this = std::move(other); }
  Admission& operator=(Admission&& other) noexcept;
  ~Admission() { GiveBack(); }

  // What it holds. The policy stays what it was, whatever else is asked of it at the same time.
  void GiveBack();

  double share() const { return policy_ == nullptr ? 1 : policy_->share; }
  bool limits_implementations() const {
    return policy_ != nullptr && policy_->implementations.has_value();
  }
  bool limits_devices() const { return policy_ != nullptr && policy_->devices.has_value(); }
  bool MayUseImplementation(absl::string_view name, absl::string_view family) const;
  bool MayUseDevice(absl::string_view name) const;

  // PERMISSION_DENIED, and counted, where the policy does not allow it; says what it allows.
  absl::Status CheckKernel(absl::string_view name) const;
  absl::Status CheckImplementation(absl::string_view name, absl::string_view family) const;
  absl::Status CheckDevice(absl::string_view name) const;
  // PERMISSION_DENIED, and counted: of all that would do, no implementation is allowed.
  absl::Status NoneAllowed(absl::string_view why) const;

  // RESOURCE_EXHAUSTED, and counted, when the principal would have more bytes in flight than it
  // may.
  absl::Status Hold(int64_t bytes);
  // Whether the principal may ever have so many.
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
  int64_t bytes_ = 0;  // held
};

// Thread-safe. Outlives what it admits.
class Gate {
 public:
  struct Options {
    const Callers* callers = nullptr;    // outlive the gate; null: nobody needs a token
    bool asks_for_certificates = false;  // of clients: TLS verifies them
    const Policies* policies = nullptr;  // outlive the gate; null: everybody may do everything
  };
  explicit Gate(const Options& options) : options_(options) {}

  bool asks_for_certificates() const { return options_.asks_for_certificates; }

  // The certificate's subject, or else the token's name, or else the connection. UNAUTHENTICATED,
  // and counted, for a call that lacks a token that counts where one is asked for, whatever its
  // certificate.
  absl::StatusOr<Principal> Identify(const Credentials& shown);

  // Lets in a call of `method`, which is in flight as long as the admission lives.
  // PERMISSION_DENIED, and counted, when the principal may not call it; RESOURCE_EXHAUSTED when it
  // has as many requests in flight as it may.
  absl::StatusOr<Admission> Admit(const Principal& principal, absl::string_view method);

  // How many calls were admitted, or refused for their principal's limits, by Policy::label; those
  // without one under "". Shows each label that the policies have; empty where they have none.
  std::map<std::string, int64_t> calls_by_label() const;

  int64_t refusals(AuthRefusal reason) const {
    return refusals_[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
  }

 private:
  friend class Admission;
  // What principals have in flight.
  struct Use {
    int64_t requests = 0;
    int64_t bytes = 0;
  };

  // Returns `status`; counts it.
  absl::Status Refuse(AuthRefusal reason, absl::Status status);
  absl::Status TakeRequest(const Principal& principal, const Policy& policy);
  void CountCall(const std::string& label) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeBytes(const Principal& principal, const Policy& policy, int64_t bytes);
  void GiveBack(uint64_t principal, int64_t bytes);

  const Options options_;
  std::array<std::atomic<int64_t>, kAuthRefusalCount> refusals_{};
  mutable absl::Mutex mutex_;
  // By Principal::id; of those only that have something in flight.
  absl::flat_hash_map<uint64_t, Use> in_flight_ ABSL_GUARDED_BY(mutex_);
  // Labels stay when policies change, as counters do: kLabelsMax in all, whatever follows counts
  // under "".
  absl::flat_hash_map<std::string, int64_t> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
