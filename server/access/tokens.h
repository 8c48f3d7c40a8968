// Who calls, by the token that comes with the call.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// Principals by their tokens. Holds the tokens' SHA-256 digests alone, and finds one by the digest
// of what came: how long that takes says nothing about a token.
// Shorter ones can be guessed by trying.
inline constexpr size_t kTokenBytesGood = 16;

class TokenTable {
 public:
  // Of a text with "name token" a line; empty lines and those that begin with # count as none. A
  // principal may have several tokens, so that one can be exchanged while the other still counts; a
  // token is one principal's. INVALID_ARGUMENT names the line, and never a token.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // UNAUTHENTICATED where nobody has the token.
  absl::StatusOr<std::string> PrincipalOf(absl::string_view token) const;

  size_t size() const { return principals_.size(); }
  // Tokens of fewer characters than kTokenBytesGood.
  size_t weak() const { return weak_; }

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(absl::string_view token);

  absl::flat_hash_map<Digest, std::string> principals_;
  size_t weak_ = 0;
};

// The token of "Bearer TOKEN", which an authorization header has. UNAUTHENTICATED says what is
// wrong with it.
absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization);

}  // namespace warpcall
