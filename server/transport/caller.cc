#include "server/transport/caller.h"

#include <google/protobuf/descriptor.h>
#include <grpc/grpc_security_constants.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "inference/grpc_service.pb.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/transport/connections.h"

namespace warpcall {
namespace {

// How long a caller who has as much in flight as it may should wait for that to end.
constexpr int64_t kQuotaPushbackMs = 100;
constexpr char kAuthorization[] = "authorization";
// Tokens and trace contexts among it: gRPC's usual limit.
constexpr int64_t kMetadataBytesMax = 8192;
// HTTP/2 counts them for each header, beside its name and value.
constexpr int64_t kHeaderBytes = 32;

// Valid as long as `context` is.
absl::string_view SubjectOf(const grpc::AuthContext& context) {
  if (!context.IsPeerAuthenticated()) return "";
  const std::vector<grpc::string_ref> subjects =
      context.FindPropertyValues(GRPC_X509_SUBJECT_PROPERTY_NAME);
  return subjects.size() == 1 ? absl::string_view(subjects[0].data(), subjects[0].size()) : "";
}

absl::Status CheckMetadata(const grpc::CallbackServerContext& context) {
  int64_t bytes = 0;
  for (const auto& [name, value] : context.client_metadata())
    bytes += static_cast<int64_t>(name.size() + value.size()) + kHeaderBytes;
  if (bytes <= kMetadataBytesMax) return absl::OkStatus();
  return RefuseFor(
      RejectReason::kQuota,
      absl::ResourceExhaustedError(absl::StrCat("the call's metadata have ", bytes,
                                                " bytes; the limit is ", kMetadataBytesMax)),
      kNeverRetry);
}

}  // namespace

absl::StatusOr<Principal> Identify(const ExecuteDeps& deps,
                                   const grpc::CallbackServerContext& context) {
  RETURN_IF_ERROR(CheckMetadata(context));
  const std::string peer = PeerOf(deps, context.peer());
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

std::string PeerOf(const ExecuteDeps& deps, const std::string& peer) {
  // So gRPC names what it serves by the descriptor.
  if (!absl::StartsWith(peer, "fd:")) return peer;
  return absl::StrCat(
      "unix:", deps.parts.connections == nullptr ? "" : deps.parts.connections->FindSource(peer));
}

absl::StatusOr<Admission> Admit(const ExecuteDeps& deps, const absl::StatusOr<Principal>& caller,
                                absl::string_view method) {
  RETURN_IF_ERROR(caller.status());
  if (deps.gate == nullptr) return Admission();
  absl::StatusOr<Admission> admission = deps.gate->Admit(*caller, method);
  if (absl::IsResourceExhausted(admission.status()))
    return RefuseFor(RejectReason::kQuota, admission.status(), kQuotaPushbackMs);
  return admission;
}

absl::Status Hold(int64_t bytes, Admission* admission) {
  absl::Status status = admission->Hold(bytes);
  if (status.ok()) return status;
  return RefuseFor(RejectReason::kQuota, std::move(status),
                   admission->MayEverHold(bytes) ? kQuotaPushbackMs : kNeverRetry);
}

Policy::Names MethodNames() {
  Policy::Names names;
  for (const google::protobuf::FileDescriptor* const file :
       {v1::ExecuteRequest::descriptor()->file(),
        inference::ModelInferRequest::descriptor()->file()}) {
    const google::protobuf::ServiceDescriptor& service = *file->service(0);
    for (int i = 0; i < service.method_count(); ++i) names.insert(service.method(i)->name());
  }
  return names;
}

}  // namespace warpcall
