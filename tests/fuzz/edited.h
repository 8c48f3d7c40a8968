// Plain structs that another process sent, with some of their bytes changed.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tests/fuzz/fuzz_input.h"

namespace warpcall::testing {

// `good` with up to seven runs of up to eight bytes written over it.
template <typename T>
T Edited(T good, FuzzInput* decisions) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto* const bytes = reinterpret_cast<char*>(&good);
  for (int edits = decisions->Byte() % 8; edits > 0; --edits) {
    const size_t at = decisions->Number(2) % sizeof(T);
    const absl::string_view change = decisions->Take(1 + decisions->Byte() % 8);
    std::memcpy(bytes + at, change.data(), std::min(change.size(), sizeof(T) - at));
  }
  return good;
}

}  // namespace warpcall::testing
