// This build's devices as main opens them where only the CPU exists, or seems to.
#include "server/program/devices.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "server/engine/phases.h"

namespace warpcall {
namespace {

TEST(DevicesTest, WithoutGpusThereIsNoMonitor) {
  Registry registry;
  AddKernels(&registry);
  auto devices = OpenDevices({.selection = "cpu"});
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ(devices->front()->CreateProfiler().status().code(), absl::StatusCode::kUnimplemented);
  EngineOptions options;
  options.staging_bytes = size_t{1} << 20;
  const auto engine = Engine::Create(registry, *std::move(devices), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(StartGpuMonitor(**engine), nullptr);
}

TEST(DevicesTest, WithoutAToolPhasesAreNotWatched) {
  unsetenv("NVTX_INJECTION64_PATH");
  InstallPhaseWatcher();
  EXPECT_EQ(phase_watcher.load(), nullptr);
}

}  // namespace
}  // namespace warpcall
