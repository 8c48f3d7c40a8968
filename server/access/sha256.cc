#include "server/access/sha256.h"

#include <openssl/evp.h>

#include "proto/common/check.h"

namespace warpcall {

struct Sha256Hash::State {
  ~State() { EVP_MD_CTX_free(context); }
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
};

Sha256Hash::Sha256Hash() : state_(std::make_unique<State>()) {
  WARPCALL_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256Hash::~Sha256Hash() = default;

void Sha256Hash::Add(absl::string_view bytes) {
  WARPCALL_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::array<uint8_t, 32> Sha256Hash::Finish() {
  std::array<uint8_t, 32> digest;
  WARPCALL_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
  return digest;
}

}  // namespace warpcall
