#include "server/access/gate.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr absl::string_view kPushMethod = "Push";

// Names go into lines of the log.
constexpr size_t kSubjectBytesMax = 1024;

constexpr const char* kRefusalNames[] = {
    "no_token", "wrong_token",    "certificate", "no_policy",          "method",
    "kernel",   "implementation", "device",      "requests_in_flight", "bytes_in_flight"};
static_assert(std::size(kRefusalNames) == kAuthRefusalCount);

std::string Who(const Principal& principal) {
  return principal.name.empty() ? "a caller without a name" : principal.name;
}

}  // namespace

const char* AuthRefusalName(AuthRefusal reason) {
  return kRefusalNames[static_cast<size_t>(reason)];
}

absl::Status Gate::Refuse(AuthRefusal reason, absl::Status status) {
  WARPCALL_DCHECK(!status.ok() && static_cast<int>(reason) < kAuthRefusalCount, reason);
  refusals_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  return status;
}

absl::StatusOr<Principal> Gate::Identify(const Credentials& shown) {
  std::string name;
  if (options_.callers != nullptr) {
    if (shown.authorizations == 0)
      return Refuse(
          AuthRefusal::kNoToken,
          absl::UnauthenticatedError("missing token: send \"authorization: Bearer TOKEN\""));
    if (shown.authorizations > 1)
      return Refuse(AuthRefusal::kWrongToken,
                    absl::UnauthenticatedError("the call brings several authorizations"));
    absl::StatusOr<std::string> found = options_.callers->PrincipalOf(shown.authorization);
    if (!found.ok()) return Refuse(AuthRefusal::kWrongToken, found.status());
    name = *std::move(found);
  }
  if (shown.certificate.size() > kSubjectBytesMax)
    return Refuse(AuthRefusal::kCertificate,
                  absl::UnauthenticatedError(absl::StrCat(
                      "the subject of the call's certificate has ", shown.certificate.size(),
                      " bytes; the limit is ", kSubjectBytesMax)));
  if (!shown.certificate.empty()) return NamedPrincipal(shown.certificate);
  return name.empty() ? ConnectionPrincipal(shown.peer) : NamedPrincipal(name);
}

absl::StatusOr<Admission> Gate::Admit(const Principal& principal, absl::string_view method) {
  Admission admission;
  if (options_.policies == nullptr) return admission;
  std::shared_ptr<const Policy> policy = options_.policies->Of(principal.name);
  if (policy == nullptr)
    return Refuse(AuthRefusal::kNoPolicy,
                  absl::PermissionDeniedError(
                      absl::StrCat(Who(principal),
                                   " may do nothing here: the server's policies have neither an "
                                   "entry of that name nor a default")));
  admission.is_push_ = method == kPushMethod;
  RETURN_IF_ERROR(TakeRequest(principal, *policy, admission.is_push_));
  admission.gate_ = this;
  admission.principal_ = principal;
  admission.policy_ = std::move(policy);
  const auto& methods = admission.policy_->methods;
  if (methods.has_value() && !methods->contains(method))
    return admission.Deny(AuthRefusal::kMethod, "call", method, *methods);
  return admission;
}

absl::Status Gate::TakeRequest(const Principal& principal, const Policy& policy, bool is_push) {
  const char* full = "requests";
  int64_t limit = policy.requests_in_flight_max;
  {
    const absl::MutexLock lock(&mutex_);
    CountCall(policy.label);
    Use& use = in_flight_[principal.id];
    const bool may_push = !is_push || use.pushes < policy.pushes_in_flight_max;
    if (use.requests < limit && may_push) {
      ++use.requests;
      use.pushes += is_push ? 1 : 0;
      return absl::OkStatus();
    }
    if (!may_push) {
      full = "pushes";
      limit = policy.pushes_in_flight_max;
    }
  }
  return Refuse(AuthRefusal::kRequestsInFlight,
                absl::ResourceExhaustedError(absl::StrCat(Who(principal), " has ", limit, " ", full,
                                                          " in flight; that is its limit (", full,
                                                          "_in_flight_max)")));
}

void Gate::CountCall(const std::string& label) {
  calls_.emplace("", 0);
  const bool has_place = calls_.contains(label) || calls_.size() <= PolicyTable::kLabelsMax;
  ++calls_[has_place ? label : ""];
}

std::map<std::string, int64_t> Gate::calls_by_label() const {
  std::map<std::string, int64_t> calls;
  if (options_.policies == nullptr) return calls;
  const std::vector<std::string> labels = options_.policies->labels();
  const absl::MutexLock lock(&mutex_);
  for (const auto& [label, count] : calls_) calls[label] = count;
  calls.emplace("", 0);
  for (const std::string& label : labels)
    if (calls.size() <= PolicyTable::kLabelsMax) calls.emplace(label, 0);
  if (calls.size() == 1) calls.clear();
  return calls;
}

absl::Status Gate::TakeBytes(const Principal& principal, const Policy& policy, int64_t bytes) {
  int64_t held;
  {
    const absl::MutexLock lock(&mutex_);
    Use& use = in_flight_[principal.id];
    if (bytes <= policy.bytes_in_flight_max - use.bytes) {
      use.bytes += bytes;
      return absl::OkStatus();
    }
    held = use.bytes;
  }
  return Refuse(AuthRefusal::kBytesInFlight,
                absl::ResourceExhaustedError(absl::StrCat(
                    Who(principal), " has ", held, " bytes in flight and this request ", bytes,
                    " more; its limit is ", policy.bytes_in_flight_max, " (bytes_in_flight_max)")));
}

void Gate::GiveBack(uint64_t principal, bool is_push, int64_t bytes) {
  const absl::MutexLock lock(&mutex_);
  const auto found = in_flight_.find(principal);
  WARPCALL_CHECK(found != in_flight_.end() && found->second.requests > 0, principal);
  WARPCALL_DCHECK(bytes >= 0 && found->second.bytes >= bytes, bytes, found->second.bytes);
  found->second.bytes -= bytes;
  found->second.pushes -= is_push ? 1 : 0;
  if (--found->second.requests == 0) in_flight_.erase(found);
}

Admission& Admission::operator=(Admission&& other) noexcept {
  std::swap(gate_, other.gate_);
  std::swap(principal_, other.principal_);
  std::swap(policy_, other.policy_);
  std::swap(is_push_, other.is_push_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Admission::GiveBack() {
  if (gate_ != nullptr) gate_->GiveBack(principal_.id, is_push_, bytes_);
  gate_ = nullptr;
  bytes_ = 0;
}

absl::Status Admission::Deny(AuthRefusal reason, absl::string_view what, absl::string_view name,
                             const Policy::Names& allowed) const {
  WARPCALL_CHECK(gate_ != nullptr);
  const std::string all = allowed.empty() ? "none" : absl::StrJoin(allowed, ", ");
  return gate_->Refuse(reason, absl::PermissionDeniedError(
                                   absl::StrCat(Who(principal_), " may not ", what, " ", name,
                                                "; the server's policy allows: ", all)));
}

bool Admission::MayUseImplementation(absl::string_view name, absl::string_view family) const {
  return !limits_implementations() || policy_->implementations->contains(name) ||
         policy_->implementations->contains(family) ||
         policy_->implementations->contains(absl::StrCat(family, ":", name));
}

bool Admission::MayUseDevice(absl::string_view name) const {
  return !limits_devices() || policy_->devices->contains(name);
}

absl::Status Admission::CheckKernel(absl::string_view name) const {
  if (policy_ == nullptr || !policy_->kernels.has_value() || policy_->kernels->contains(name))
    return absl::OkStatus();
  return Deny(AuthRefusal::kKernel, "run", name, *policy_->kernels);
}

absl::Status Admission::CheckImplementation(absl::string_view name,
                                            absl::string_view family) const {
  if (MayUseImplementation(name, family)) return absl::OkStatus();
  return Deny(AuthRefusal::kImplementation, "use the implementation", name,
              *policy_->implementations);
}

absl::Status Admission::CheckDevice(absl::string_view name) const {
  if (MayUseDevice(name)) return absl::OkStatus();
  return Deny(AuthRefusal::kDevice, "use the device", name, *policy_->devices);
}

absl::Status Admission::NoneAllowed(absl::string_view why) const {
  return gate_->Refuse(
      limits_implementations() ? AuthRefusal::kImplementation : AuthRefusal::kDevice,
      absl::PermissionDeniedError(absl::StrCat("the server's policy for ", Who(principal_),
                                               " allows nothing that can run this: ", why)));
}

absl::Status Admission::Hold(int64_t bytes) {
  WARPCALL_DCHECK(bytes >= 0, bytes);
  if (gate_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(gate_->TakeBytes(principal_, *policy_, bytes));
  bytes_ += bytes;
  return absl::OkStatus();
}

}  // namespace warpcall
