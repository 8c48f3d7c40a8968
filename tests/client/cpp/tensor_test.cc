#include "client/cpp/tensor.h"

#include <gtest/gtest.h>

#include <cstring>

namespace warpcall::client {
namespace {

TEST(AllocateBytesTest, GivesMemoryOfAnySize) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, (size_t{4} << 20) - 1,
                             size_t{4} << 20, (size_t{5} << 20) + 3}) {
    const auto memory = AllocateBytes(bytes);
    ASSERT_NE(memory, nullptr) << bytes;
    std::memset(memory.get(), 'x', bytes);
    const size_t alignment = bytes >= size_t{4} << 20 ? size_t{2} << 20 : alignof(float);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % alignment, 0u) << bytes;
  }
}

}  // namespace
}  // namespace warpcall::client
