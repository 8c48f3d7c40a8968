// Finds the principal of a call by the call's token.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// Principals by their tokens. Holds only the SHA-256 digests of the tokens and looks them up by
// digest, so that the time of a lookup reveals nothing about a token.
// Tokens of fewer characters can be guessed by trying.
inline constexpr size_t kTokenBytesGood = 16;

class TokenTable {
 public:
  // Reads lines "name token"; skips empty lines and lines that begin with #. A principal may have
  // several tokens, so that one can be replaced while the other is still valid. A token belongs to
  // one principal. INVALID_ARGUMENT names the line, and never a token.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // UNAUTHENTICATED if no principal has the token.
  absl::StatusOr<std::string> PrincipalOf(absl::string_view token) const;

  size_t size() const { return principals_.size(); }
  // Returns the principals.
  std::set<std::string> names() const;
  // Number of tokens of fewer characters than kTokenBytesGood.
  size_t weak() const { return weak_; }

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(absl::string_view token);

  absl::flat_hash_map<Digest, std::string> principals_;
  size_t weak_ = 0;
};

// Returns TOKEN of an authorization header "Bearer TOKEN". UNAUTHENTICATED says what is wrong with
// the header.
absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization);

}  // namespace warpcall
