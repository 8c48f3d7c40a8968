// Messages as the network could deliver them, and damaged ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/wire/tensor_split.h"

namespace warpcall::testing {

// Seed for random tests: WARPCALL_TEST_SEED, or a new one, which it prints.
inline uint32_t Seed() {
  const char* const given = std::getenv("WARPCALL_TEST_SEED");
  const uint32_t seed =
      given != nullptr ? static_cast<uint32_t>(std::atoll(given)) : std::random_device()();
  std::printf("seed %u (WARPCALL_TEST_SEED)\n", seed);
  return seed;
}

// Protobuf's encoding.
inline std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}
inline std::string Field(int number, int wire_type, const std::string& rest) {
  return Varint(static_cast<uint64_t>(number << 3 | wire_type)) + rest;
}
inline std::string Length(int number, const std::string& content) {
  return Field(number, 2, Varint(content.size()) + content);
}
inline std::string Group(int number, const std::string& content) {
  return Field(number, 3, content) + Field(number, 4, "");
}

// Each fragment in a heap block of its exact size, so that AddressSanitizer sees a read past its
// end. Seed 0: one fragment.
class Fragments {
 public:
  Fragments(absl::string_view message, uint32_t seed) {
    std::minstd_rand random(seed);
    while (!message.empty()) {
      const size_t bytes =
          std::min<size_t>(message.size(), seed == 0 ? message.size() : random() % 9);
      blocks_.push_back(std::make_unique<char[]>(bytes));
      std::copy_n(message.data(), bytes, blocks_.back().get());
      spans_.emplace_back(blocks_.back().get(), bytes);
      message.remove_prefix(bytes);
    }
  }
  absl::Span<const wire::Bytes> spans() const { return spans_; }

 private:
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<wire::Bytes> spans_;
};

// `base` with one to four places changed, doubled or left out.
inline std::string Mutated(const std::string& base, std::mt19937& random) {
  std::string message = base;
  for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = random() % message.size();
    switch (random() % 4) {
      case 0:
        message[at] = static_cast<char>(random());
        break;
      case 1:
        message[at] = static_cast<char>(message[at] ^ (1 << random() % 8));
        break;
      case 2:
        message.insert(at, base.substr(random() % base.size(), random() % 20));
        break;
      default:
        message.erase(at, random() % 10);
        if (message.empty()) message = base;
    }
  }
  return message;
}

}  // namespace warpcall::testing
