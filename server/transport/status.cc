#include "server/transport/status.h"

#include <string>

namespace warpcall {
namespace {

// gRPC carries the message in a header; longer ones are cut so that no client refuses the trailers
// (their limit is 8 KiB by default, after percent-encoding).
constexpr size_t kMessageBytesMax = 2000;

// Header text must be UTF-8; what a client sent may not be.
std::string Printable(absl::string_view message) {
  std::string text(message.substr(0, kMessageBytesMax));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) c = '?';
  if (message.size() > kMessageBytesMax) text += "...";
  return text;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both libraries number the canonical codes alike.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Printable(status.message()));
}

const char* CodeName(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return "OK";
    case absl::StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case absl::StatusCode::kNotFound:
      return "NOT_FOUND";
    case absl::StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case absl::StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case absl::StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case absl::StatusCode::kCancelled:
      return "CANCELLED";
    case absl::StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
    case absl::StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case absl::StatusCode::kUnavailable:
      return "UNAVAILABLE";
    default:
      return "INTERNAL";
  }
}

}  // namespace warpcall
