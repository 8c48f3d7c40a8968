#include "server/access/tokens.h"

#include <openssl/sha.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall {
namespace {

constexpr char kScheme[] = "bearer ";
// Names go into log lines and labels of metrics.
constexpr size_t kNameBytesMax = 128;
// gRPC's limit for all metadata of a call is 8 KiB.
constexpr size_t kTokenBytesMax = 4096;

bool IsVisible(absl::string_view text) {
  for (const char c : text)
    if (c <= ' ' || c > '~') return false;
  return true;
}

absl::Status CheckLine(absl::string_view name, absl::string_view token) {
  if (name.size() > kNameBytesMax || !IsVisible(name))
    return absl::InvalidArgumentError(
        absl::StrCat("the name has to be 1 to ", kNameBytesMax, " printable ASCII characters"));
  if (token.size() > kTokenBytesMax || !IsVisible(token))
    return absl::InvalidArgumentError(absl::StrCat("the token of ", name, " has ", token.size(),
                                                   " bytes; it has to be 1 to ", kTokenBytesMax,
                                                   " printable ASCII characters"));
  return absl::OkStatus();
}

}  // namespace

TokenTable::Digest TokenTable::DigestOf(absl::string_view token) {
  Digest digest;
  SHA256(reinterpret_cast<const uint8_t*>(token.data()), token.size(), digest.data());
  return digest;
}

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text) {
  TokenTable table;
  absl::flat_hash_map<Digest, int> lines;  // on which each token stands
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    absl::Status status = words.size() == 2
                              ? CheckLine(words[0], words[1])
                              : absl::InvalidArgumentError(absl::StrCat(
                                    "has ", words.size(), words.size() == 1 ? " word" : " words",
                                    ", not a name and a token; a comment stands on a line of its "
                                    "own, which begins with #"));
    if (status.ok()) {
      const Digest digest = DigestOf(words[1]);
      const auto [other, is_new] = table.principals_.emplace(digest, std::string(words[0]));
      if (!is_new)
        status =
            absl::InvalidArgumentError(absl::StrCat("the token of ", words[0], " is also that of ",
                                                    other->second, ", on line ", lines[digest]));
      lines.emplace(digest, number);
    }
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    if (words[1].size() < kTokenBytesGood) ++table.weak_;
  }
  if (table.principals_.empty())
    return absl::InvalidArgumentError("it has no token, so nobody could call");
  return table;
}

std::set<std::string> TokenTable::names() const {
  std::set<std::string> names;
  for (const auto& [digest, name] : principals_) names.insert(name);
  return names;
}

absl::StatusOr<std::string> TokenTable::PrincipalOf(absl::string_view token) const {
  const auto found = principals_.find(DigestOf(token));
  if (found == principals_.end()) return absl::UnauthenticatedError("unknown token");
  return found->second;
}

absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization) {
  if (!absl::StartsWithIgnoreCase(authorization, kScheme))
    return absl::UnauthenticatedError("the call's authorization is not \"Bearer TOKEN\"");
  const absl::string_view token =
      absl::StripAsciiWhitespace(authorization.substr(sizeof(kScheme) - 1));
  if (token.empty() || token.size() > kTokenBytesMax)
    return absl::UnauthenticatedError(absl::StrCat("the call's token has ", token.size(),
                                                   " bytes; it has to be 1 to ", kTokenBytesMax));
  return token;
}

}  // namespace warpcall
