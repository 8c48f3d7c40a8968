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
                    "Connect with TLS, and trust the authorities of this system");
  arguments.Add(kTlsCa, &files->ca, "With TLS, trusting this PEM file's authorities")
      .TypeName("FILE")
      .FromEnvironment("WARPCALL_TLS_CA");
  arguments.Add(kTlsCert, &files->cert, "Own certificate, a PEM file, for a server that asks")
      .TypeName("FILE")
      .FromEnvironment("WARPCALL_TLS_CERT");
  arguments.Add(kTlsKey, &files->key, "Its private key, a PEM file")
      .TypeName("FILE")
      .FromEnvironment("WARPCALL_TLS_KEY");
  arguments.Add(kTokenFile, &files->token, "A file with the token that comes with every call")
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
