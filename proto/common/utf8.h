// UTF-8, for texts that may be anything.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace warpcall {

// Length of the UTF-8 sequence of several bytes that `text` begins with, 0 where there is none:
// table 3-7 of the Unicode standard. REQUIRES: `text` is not empty.
inline size_t Utf8SequenceBytes(absl::string_view text) {
  struct Form {
    unsigned char first_min, first_max, second_min, second_max;
    size_t bytes;
  };
  constexpr Form kForms[] = {{0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                             {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
                             {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
                             {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  const auto in = [&](size_t at, unsigned char low, unsigned char high) {
    const auto byte = static_cast<unsigned char>(text[at]);
    return byte >= low && byte <= high;
  };
  for (const Form& form : kForms) {
    if (!in(0, form.first_min, form.first_max)) continue;
    if (text.size() < form.bytes || !in(1, form.second_min, form.second_max)) return 0;
    for (size_t i = 2; i < form.bytes; ++i)
      if (!in(i, 0x80, 0xBF)) return 0;
    return form.bytes;
  }
  return 0;
}

}  // namespace warpcall
