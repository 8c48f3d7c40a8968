#include "kernels/compiled/sha256.h"

#include <openssl/sha.h>

namespace warpcall::compiled {

Sha256 Sha256Of(absl::string_view data) {
  Sha256 hash;
  static_assert(sizeof(hash) == SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), hash.data());
  return hash;
}

}  // namespace warpcall::compiled
