#include "server/transport/certificates.h"

#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr unsigned kSecondsBetweenReads = 1;

}  // namespace

// One descriptor, at which gRPC opens whatever lies there: dup3 puts another file in its place at
// once, so that nobody sees a part of one.
class Certificates::Copy {
 public:
  ~Copy() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  absl::Status Set(const std::string& text) {
    const int file = memfd_create("certificates", MFD_CLOEXEC);
    if (file < 0) return Failed("memfd_create");
    if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      close(file);
      return Failed("write");
    }
    if (descriptor_ < 0) {
      descriptor_ = file;
      return absl::OkStatus();
    }
    const bool done = dup3(file, descriptor_, O_CLOEXEC) == descriptor_;
    const absl::Status status = done ? absl::OkStatus() : Failed("dup3");
    close(file);
    return status;
  }

  std::string path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

 private:
  static absl::Status Failed(const char* what) {
    return absl::InternalError(
        absl::StrCat("certificates in memory: ", what, ": ", strerror(errno)));
  }

  int descriptor_ = -1;
};

Certificates::Certificates(TlsFiles files)
    : files_(std::move(files)),
      identity_(std::make_unique<Copy>()),
      client_ca_(std::make_unique<Copy>()) {}

Certificates::~Certificates() = default;

absl::StatusOr<std::unique_ptr<Certificates>> Certificates::Open(TlsFiles files) {
  std::unique_ptr<Certificates> certificates(new Certificates(std::move(files)));
  RETURN_IF_ERROR(certificates->ReadAgain().status());
  const absl::MutexLock lock(&certificates->mutex_);
  certificates->identity_path_ = certificates->identity_->path();
  if (!certificates->files_.client_ca.empty())
    certificates->client_ca_path_ = certificates->client_ca_->path();
  return certificates;
}

absl::StatusOr<std::string> Certificates::ReadAgain() {
  const absl::MutexLock lock(&mutex_);  // orders reads, so that they set identity_ in turn
  TlsMaterial material;
  ASSIGN_OR_RETURN(material, ReadTlsFiles(files_));
  RETURN_IF_ERROR(identity_->Set(material.identity));
  if (!files_.client_ca.empty()) RETURN_IF_ERROR(client_ca_->Set(material.client_ca));
  expiry_ = material.expiry;
  return absl::StrCat("a certificate until ", absl::FormatTime(material.expiry));
}

absl::Time Certificates::expiry() const {
  const absl::MutexLock lock(&mutex_);
  return expiry_;
}

std::shared_ptr<grpc::ServerCredentials> Certificates::credentials() const {
  // Key and certificates stand in one file, of which each reader takes what it looks for.
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          identity_path_, identity_path_, client_ca_path_, kSecondsBetweenReads));
  options.watch_identity_key_cert_pairs();
  if (!client_ca_path_.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace warpcall
