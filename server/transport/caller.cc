#include "server/transport/caller.h"

#include <grpc/grpc_security_constants.h>

#include <string>
#include <vector>

#include "server/access/gate.h"

namespace warpcall {
namespace {

constexpr char kAuthorization[] = "authorization";

// Valid as long as `context` is.
absl::string_view SubjectOf(const grpc::AuthContext& context) {
  if (!context.IsPeerAuthenticated()) return "";
  const std::vector<grpc::string_ref> subjects =
      context.FindPropertyValues(GRPC_X509_SUBJECT_PROPERTY_NAME);
  return subjects.size() == 1 ? absl::string_view(subjects[0].data(), subjects[0].size()) : "";
}

}  // namespace

absl::StatusOr<Principal> Identify(const ExecuteDeps& deps,
                                   const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  if (deps.gate == nullptr) return ConnectionPrincipal(peer);
  Credentials shown;
  shown.peer = peer;
  for (auto [at, end] = context.client_metadata().equal_range(kAuthorization); at != end; ++at)
    if (++shown.authorizations == 1) shown.authorization = {at->second.data(), at->second.size()};
  std::shared_ptr<const grpc::AuthContext> auth;
  if (deps.gate->asks_for_certificates()) {
    auth = context.auth_context();
    shown.certificate = SubjectOf(*auth);
  }
  return deps.gate->Identify(shown);
}

}  // namespace warpcall
