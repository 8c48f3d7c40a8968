// The header of a .npy file. Internal to the library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::client {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// `text` is the header's Python dictionary literal, with exactly the keys of NpyHeader;
// INVALID_ARGUMENT otherwise.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text);

}  // namespace warpcall::client
