// Bytes that a fuzzer chose, read as the decisions of one run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

// Past the end there are zeros, and no texts.
class FuzzInput {
 public:
  explicit FuzzInput(absl::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    const absl::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  // Reads a number of so many bytes, the least significant first.
  uint64_t Number(int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes; ++i) number |= uint64_t{Byte()} << (8 * i);
    return number;
  }
  // Returns so many bytes, or the rest if it has fewer.
  absl::string_view Take(size_t bytes) {
    const absl::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  absl::string_view Rest() { return Take(rest_.size()); }

 private:
  absl::string_view rest_;
};

}  // namespace warpcall::testing
