// Options for the client's credentials and the servers to trust.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/common/options.h"
#include "warpcall/client.h"

namespace warpcall::cli {

// Names of files, because every user of a machine can see its command lines.
struct CredentialFiles {
  bool tls = false;  // also where one of the next three is given
  std::string ca;
  std::string cert;
  std::string key;
  std::string token;
};

// `files` must not move afterwards.
void AddCredentialOptions(const Arguments& arguments, CredentialFiles* files);

// INVALID_ARGUMENT names the option and the file that cannot be read, or holds no token.
absl::StatusOr<client::Credentials> ReadCredentials(const CredentialFiles& files);

}  // namespace warpcall::cli
