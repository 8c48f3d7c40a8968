#include "client/cli/common/credentials.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

constexpr char kTlsCa[] = "--tls_ca";
constexpr char kTlsCert[] = "--tls_cert";
constexpr char kTlsKey[] = "--tls_key";
constexpr char kTokenFile[] = "--token_file";

absl::StatusOr<std::string> Read(const char* option, const std::string& path) {
  if (path.empty()) return std::string();
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // Not by iterators, out of which a folder's error is thrown.
  for (char part[4096]; file.read(part, sizeof(part)) || file.gcount() > 0;)
    text.append(part, static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad())
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", path, ": ", strerror(errno == 0 ? EIO : errno)));
  if (absl::StripAsciiWhitespace(text).empty())
    return absl::InvalidArgumentError(absl::StrCat(option, ": ", path, ": is empty"));
  return text;
}

}  // namespace

void AddCredentialOptions(const Arguments& arguments, CredentialFiles* files) {
  arguments.AddFlag("--tls", &files->tls,
                    "Connect with TLS and trust this system's certificate authorities");
  arguments
      .Add(kTlsCa, &files->ca,
           "Connect with TLS and trust the certificate authorities in this PEM file")
      .TypeName("FILE")
      .FromEnvironment("WARPCALL_TLS_CA");
  arguments
      .Add(kTlsCert, &files->cert,
           "PEM file with the client's certificate, for servers that require one")
      .TypeName("FILE")
      .FromEnvironment("WARPCALL_TLS_CERT");
  arguments.Add(kTlsKey, &files->key, "PEM file with the private key of --tls_cert")
      .TypeName("FILE")
      .FromEnvironment("WARPCALL_TLS_KEY");
  arguments.Add(kTokenFile, &files->token, "File with the token to send with every call")
      .TypeName("FILE")
      .FromEnvironment("WARPCALL_TOKEN_FILE");
}

absl::StatusOr<client::Credentials> ReadCredentials(const CredentialFiles& files) {
  client::Credentials credentials;
  ASSIGN_OR_RETURN(credentials.ca, Read(kTlsCa, files.ca));
  ASSIGN_OR_RETURN(credentials.cert, Read(kTlsCert, files.cert));
  ASSIGN_OR_RETURN(credentials.key, Read(kTlsKey, files.key));
  ASSIGN_OR_RETURN(credentials.token, Read(kTokenFile, files.token));
  absl::StripAsciiWhitespace(&credentials.token);
  if (credentials.cert.empty() != credentials.key.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(kTlsCert, " and ", kTlsKey, ": one of them is not given"));
  credentials.tls = files.tls || !credentials.ca.empty() || !credentials.cert.empty();
  return credentials;
}

}  // namespace warpcall::cli
