#include "kernels/cpu/reads.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>

#include "kernels/cpu/thread_pool.h"

namespace warpcall::cpu {
namespace {

constexpr auto kUnit = static_cast<int64_t>(kOperandAlignmentBytes);

struct Deleter {
  void operator()(uint64_t* words) const {
    ::operator delete[](words, std::align_val_t{kOperandAlignmentBytes});
  }
};
using Words = std::unique_ptr<uint64_t[], Deleter>;

// Words that differ in their upper and lower halves.
Words Memory(int64_t bytes) {
  const auto count = static_cast<size_t>(bytes) / sizeof(uint64_t);
  Words words(new (std::align_val_t{kOperandAlignmentBytes}) uint64_t[count]);
  uint64_t word = 1;
  for (size_t i = 0; i < count; ++i) words[i] = word = word * 6364136223846793005u + 1;
  return words;
}

TEST(ReadMemoryTest, ReadsEveryWordOnce) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int64_t bytes : {kUnit, 3 * kUnit, 1023 * kUnit, 1025 * kUnit, 4099 * kUnit}) {
      const Words words = Memory(bytes);
      uint64_t expected = 0;
      for (int64_t i = 0; i < bytes / 8; ++i) expected ^= words[static_cast<size_t>(i)];
      EXPECT_EQ(ReadMemory({&pool, nullptr}, words.get(), bytes), expected)
          << bytes << " bytes, " << threads << " threads";
    }
  }
}

TEST(ReadsOnTest, PlansForTheCpuOnly) {
  ThreadPool pool(1);
  const Words words = Memory(kUnit);
  const auto plan = ReadsOn(kUnit, {.kind = DeviceKind::kCpu});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->traits().workspace_bytes, 0u);
  EXPECT_TRUE((*plan)->Enqueue({.inputs = {words.get()}}, {.stream = &pool}).ok());
  EXPECT_EQ(ReadsOn(kUnit, {.kind = DeviceKind::kCuda}).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace warpcall::cpu
