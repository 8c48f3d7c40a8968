#include "server/access/gate.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

// Names go into lines of the log.
constexpr size_t kSubjectBytesMax = 1024;

}  // namespace

const char* AuthRefusalName(AuthRefusal reason) {
  switch (reason) {
    case AuthRefusal::kNoToken:
      return "no_token";
    case AuthRefusal::kWrongToken:
      return "wrong_token";
    case AuthRefusal::kCertificate:
      return "certificate";
  }
  return "";
}

absl::Status Gate::Refuse(AuthRefusal reason, absl::Status status) {
  refusals_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  return status;
}

absl::StatusOr<Principal> Gate::Identify(const Credentials& shown) {
  std::string name;
  if (options_.callers != nullptr) {
    if (shown.authorizations == 0)
      return Refuse(AuthRefusal::kNoToken,
                    absl::UnauthenticatedError("the call brings no token, which this server asks "
                                               "for: \"authorization: Bearer TOKEN\""));
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

}  // namespace warpcall
