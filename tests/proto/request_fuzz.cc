// libFuzzer target: any bytes, any fragmentation.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/proto/split_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string difference = warpcall::testing::CompareWithProtobuf(
      absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1), data[0]);
  if (!difference.empty()) {
    std::fprintf(stderr, "%s\n", difference.c_str());
    std::abort();
  }
  return 0;
}
