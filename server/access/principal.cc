#include "server/access/principal.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace warpcall {
namespace {

enum class Kind : uint8_t { kNamed, kConnection };

// Seeded anew by each process, so that nobody can choose a peer that shares another's id.
uint64_t IdOf(Kind kind, absl::string_view text) {
  return std::max<uint64_t>(absl::HashOf(kind, text), 1);
}

}  // namespace

Principal NamedPrincipal(absl::string_view name) {
  return {IdOf(Kind::kNamed, name), std::string(name)};
}

Principal ConnectionPrincipal(absl::string_view peer) {
  return {IdOf(Kind::kConnection, peer), ""};
}

}  // namespace warpcall
