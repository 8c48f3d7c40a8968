#include "server/access/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/system/small_file.h"

namespace warpcall {
namespace {

constexpr char kCert[] = "tls_cert";
constexpr char kKey[] = "tls_key";
constexpr char kClientCa[] = "tls_client_ca";

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Memory = std::unique_ptr<BIO, decltype(&BIO_free)>;

Memory Over(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// Never asks a terminal.
int NoPassword(char*, int, int, void*) { return 0; }

absl::Status Wrong(const char* flag, const std::string& path, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", path, ": ", what));
}

Certificate FirstCertificate(const std::string& pem) {
  return {PEM_read_bio_X509(Over(pem).get(), nullptr, NoPassword, nullptr), X509_free};
}

absl::Time ToTime(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

absl::Status CheckTime(const X509* certificate, const std::string& path, absl::Time now) {
  const absl::Time begin = ToTime(X509_get0_notBefore(certificate));
  const absl::Time end = ToTime(X509_get0_notAfter(certificate));
  if (end <= now)
    return Wrong(kCert, path, absl::StrCat("the certificate expired on ", absl::FormatTime(end)));
  if (begin > now)
    return Wrong(kCert, path, absl::StrCat("the certificate begins on ", absl::FormatTime(begin)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files, absl::Time now) {
  ASSIGN_OR_RETURN(const std::string cert, ReadSmallFile(kCert, files.cert));
  ASSIGN_OR_RETURN(const std::string key, ReadSmallFile(kKey, files.key));
  TlsMaterial material;
  const Certificate certificate = FirstCertificate(cert);
  if (certificate == nullptr) return Wrong(kCert, files.cert, "there is no PEM of a certificate");
  const Key private_key(PEM_read_bio_PrivateKey(Over(key).get(), nullptr, NoPassword, nullptr),
                        EVP_PKEY_free);
  if (private_key == nullptr)
    return Wrong(kKey, files.key, "there is no PEM of a private key that is not encrypted");
  if (X509_check_private_key(certificate.get(), private_key.get()) != 1)
    return Wrong(kKey, files.key,
                 absl::StrCat("is not the key of the certificate in ", files.cert));
  RETURN_IF_ERROR(CheckTime(certificate.get(), files.cert, now));
  material.identity = absl::StrCat(key, "\n", cert);
  material.expiry = ToTime(X509_get0_notAfter(certificate.get()));
  if (files.client_ca.empty()) return material;
  ASSIGN_OR_RETURN(material.client_ca, ReadSmallFile(kClientCa, files.client_ca));
  if (FirstCertificate(material.client_ca) == nullptr)
    return Wrong(kClientCa, files.client_ca, "there is no PEM of a certificate");
  return material;
}

}  // namespace warpcall
