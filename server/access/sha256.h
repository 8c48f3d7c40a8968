// SHA-256 (FIPS 180-4) of bytes that come piece by piece.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace warpcall {

class Sha256Hash {
 public:
  Sha256Hash();
  ~Sha256Hash();
  Sha256Hash(const Sha256Hash&) = delete;
  Sha256Hash& operator=(const Sha256Hash&) = delete;

  void Add(absl::string_view bytes);
  // REQUIRES: called once, last.
  std::array<uint8_t, 32> Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace warpcall
