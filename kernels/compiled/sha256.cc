#include "kernels/compiled/sha256.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace warpcall::compiled {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr size_t kLengthBytes = 8;

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

class Hasher {
 public:
  void Take(const char* block) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      uint8_t bytes[4];
      std::memcpy(bytes, block + 4 * i, sizeof(bytes));
      w[i] = uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
             uint32_t{bytes[3]};
    }
    for (int i = 16; i < 64; ++i) {
      const uint32_t a = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t b = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    uint32_t s[8];
    std::memcpy(s, state_, sizeof(s));
    for (int i = 0; i < 64; ++i) {
      const uint32_t e = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
      const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
      const uint32_t first = s[7] + e + choice + kRounds[i] + w[i];
      const uint32_t a = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
      const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      std::memmove(s + 1, s, 7 * sizeof(s[0]));
      s[4] += first;
      s[0] = first + a + majority;
    }
    for (int i = 0; i < 8; ++i) state_[i] += s[i];
  }

  Sha256 Result() const {
    Sha256 result;
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
    return result;
  }

 private:
  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

}  // namespace

Sha256 Sha256Of(absl::string_view data) {
  Hasher hasher;
  size_t done = 0;
  for (; data.size() - done >= kBlockBytes; done += kBlockBytes) hasher.Take(data.data() + done);
  // What is left, a bit that is set, zeros, and the length in bits: one block more, or two.
  char last[2 * kBlockBytes] = {};
  const size_t left = data.size() - done;
  if (left > 0) std::memcpy(last, data.data() + done, left);
  last[left] = static_cast<char>(0x80);
  const size_t bytes = left + 1 + kLengthBytes <= kBlockBytes ? kBlockBytes : 2 * kBlockBytes;
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (size_t i = 0; i < kLengthBytes; ++i)
    last[bytes - 1 - i] = static_cast<char>(bits >> (8 * i) & 0xFF);
  for (size_t at = 0; at < bytes; at += kBlockBytes) hasher.Take(last + at);
  return hasher.Result();
}

}  // namespace warpcall::compiled
