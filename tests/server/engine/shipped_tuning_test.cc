// The shipped tuning table has a class only where the order of implementations is worse than what
// was measured. With WARPCALL_TEST_TABLE=FROM,TO this writes a table of FROM's classes that are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/engine/tuning_cache.h"
#include "server/engine/tuning_text.h"
#include "server/program/devices.h"

namespace warpcall {
namespace {

// A class with less to win is left to the order.
constexpr double kLoss = 1.03;

// What the order of implementations asks of a device.
DeviceProperties DeviceOf(const TunedClass& tuned) {
  DeviceProperties device;
  device.name = "cuda:0";
  device.kind = DeviceKind::kCuda;
  device.description = absl::StrContains(tuned.device_model, "H200") ? "H200" : "H100";
  device.multiprocessors = 132;
  device.threads_per_multiprocessor = 2048;
  device.l2_bytes = int64_t{50} << 20;
  device.memory_bytes = int64_t{80} << 30;
  device.shared_memory_per_block_bytes = 232'448;
  device.compute_capability = "9.0";
  device.architecture = 90;
  return device;
}

// Time of the implementation that the order chooses, over that of the best.
double LossOf(const Registry& registry, const TunedClass& tuned) {
  const Kernel& kernel = registry.kernels()[static_cast<size_t>(tuned.kernel)];
  const auto row = registry.Select(kernel, "auto", tuned.problem, DeviceOf(tuned));
  if (!row.ok() || tuned.right.empty()) return 0;
  const auto chosen =
      absl::c_find_if(tuned.right, [&](const RightRow& each) { return each.row == (*row)->id; });
  // It was wrong, or is newer than the measurement.
  if (chosen == tuned.right.end()) return 0;
  return chosen->median_ns / tuned.right.front().median_ns;
}

TEST(ShippedTuningTest, HasTheClassesWhereTheOrderLoses) {
  Registry registry;
  AddKernels(&registry);
  const auto shipped = ParseTuning(registry, ShippedTuning());
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  EXPECT_THAT(shipped->unknown, testing::IsEmpty());
  for (const TunedClass& tuned : shipped->classes) {
    const Op& op = *registry.kernels()[static_cast<size_t>(tuned.kernel)].op;
    EXPECT_GE(LossOf(registry, tuned), kLoss)
        << tuned.device_model << " " << op.name << " " << ToText(op, tuned.problem);
  }
}

TEST(ShippedTuningTest, WritesATable) {
  const char* const paths = std::getenv("WARPCALL_TEST_TABLE");
  if (paths == nullptr) GTEST_SKIP() << "WARPCALL_TEST_TABLE names none";
  const std::pair<std::string, std::string> from_to = absl::StrSplit(paths, ',');
  std::stringstream text;
  text << std::ifstream(from_to.first).rdbuf();
  Registry registry;
  AddKernels(&registry);
  auto measured = ParseTuning(registry, text.str());
  ASSERT_TRUE(measured.ok()) << measured.status();
  std::vector<std::shared_ptr<const TunedClass>> kept;
  for (TunedClass& tuned : measured->classes)
    if (LossOf(registry, tuned) >= kLoss)
      kept.push_back(std::make_shared<const TunedClass>(std::move(tuned)));
  std::ofstream(from_to.second) << FormatTuning(registry, kept, {});
  std::printf("%zu of %zu classes\n", kept.size(), measured->classes.size());
}

}  // namespace
}  // namespace warpcall
