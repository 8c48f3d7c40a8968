#include "tests/kernels/seed.h"

#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "kernels/check/fill.h"

namespace warpcall::testing {
namespace {

uint64_t SeedFromEnvironment() {
  const char* const text = std::getenv("WARPCALL_TEST_SEED");
  uint64_t seed = 0;
  if (text != nullptr && absl::SimpleAtoi(text, &seed)) return seed;
  return std::random_device()();
}

// FNV-1a (Fowler, Noll, Vo).
uint64_t Hash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

uint64_t RunSeed() {
  static const uint64_t seed = [] {
    const uint64_t chosen = SeedFromEnvironment();
    std::printf("Random data: repeat this run with WARPCALL_TEST_SEED=%llu\n",
                static_cast<unsigned long long>(chosen));
    std::fflush(stdout);
    return chosen;
  }();
  return seed;
}

Memory FilledInput(const TensorSpec& spec, Fill fill, absl::string_view label) {
  Memory memory(spec.bytes());
  FillInput(spec, fill, RunSeed() ^ Hash(label), memory.data());
  return memory;
}

}  // namespace warpcall::testing
