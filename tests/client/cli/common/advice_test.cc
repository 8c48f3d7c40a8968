#include "client/cli/common/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpcall::cli {
namespace {

using client::Description;
using client::DeviceInfo;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 132 multiprocessors of 128 float32 lanes, at 1.4 GHz 47.3 TFLOP/s: 11.8 FLOP/B.
DeviceInfo Gpu() {
  return {.name = "cuda:0",
          .kind = "cuda",
          .description = "",
          .multiprocessors = 132,
          .compute_capability = "9.0",
          .measured_bandwidth_bytes_per_second = 4e12};
}

// Full waves, no spills, no work.
Description Launched() {
  Description description;
  description.set_grid("1056x1x1");
  description.mutable_launch()->set_waves(1);
  return description;
}

TEST(AdviceTest, AFullLaunchNeedsNone) { EXPECT_THAT(Advise(Launched(), Gpu()), IsEmpty()); }

TEST(AdviceTest, ALastWaveIsWorthAWordWhereItLeavesATenthEmpty) {
  Description description = Launched();
  description.mutable_launch()->set_waves(1.25);
  EXPECT_THAT(Advise(description, Gpu()),
              ElementsAre("The last of 2 waves fills 25 % of the device: 38 % of all slots for "
                          "blocks stay empty."));
  description.mutable_launch()->set_waves(9.1);  // 9 % of ten
  EXPECT_THAT(Advise(description, Gpu()), IsEmpty());
  description.mutable_launch()->set_waves(8.05);
  EXPECT_THAT(Advise(description, Gpu()), ElementsAre(HasSubstr("The last of 9 waves fills 5 %")));
  description.mutable_launch()->set_waves(0.25);
  EXPECT_THAT(Advise(description, Gpu()), ElementsAre(HasSubstr("fill 25 % of the device")));
}

TEST(AdviceTest, FewerThanFourBlocksForEachMultiprocessor) {
  Description description = Launched();
  description.set_grid("66x2x3");  // 396, 3 each
  EXPECT_THAT(Advise(description, Gpu()),
              ElementsAre("396 blocks on 132 multiprocessors are 3.0 for each; with fewer than 4 "
                          "there is little to do while some wait."));
  description.set_grid("132x2x2");
  EXPECT_THAT(Advise(description, Gpu()), IsEmpty());
  for (const char* const none : {"", "many", "132x"}) {
    description.set_grid(none);
    EXPECT_THAT(Advise(description, Gpu()), IsEmpty()) << none;
  }
}

TEST(AdviceTest, SpillsAreNamed) {
  Description description = Launched();
  description.set_registers_per_thread(255);
  description.set_local_memory_bytes(64);
  EXPECT_THAT(Advise(description, Gpu()),
              ElementsAre("64 bytes of each thread do not fit into its 255 registers and go "
                          "through the caches: spills."));
}

TEST(AdviceTest, TheRooflineTellsWhatTheLimitIs) {
  Description description = Launched();
  description.mutable_launch()->set_bytes_moved(4'000'000);
  description.mutable_launch()->set_flops(4'000'000);
  EXPECT_THAT(
      Advise(description, Gpu()),
      ElementsAre("Arithmetic intensity is 1 FLOP/B, below the 11.8 FLOP/B where float32 lanes, "
                  "47.3 TFLOP/s without tensor cores, would become the limit: memory is the limit. "
                  "Moving its 3.81 MiB at the 4.00 TB/s that a copy was measured to reach takes "
                  "1.00 us."));
  description.mutable_launch()->set_flops(400'000'000);
  EXPECT_THAT(Advise(description, Gpu()), ElementsAre(HasSubstr("arithmetic is the limit.")));
  DeviceInfo older = Gpu();
  older.compute_capability = "8.0";
  EXPECT_THAT(Advise(description, older), ElementsAre(HasSubstr("above the 5.91 FLOP/B")));
}

TEST(AdviceTest, ADeviceThatWasNotMeasuredAndACpuHaveNoRoofline) {
  Description description = Launched();
  description.mutable_launch()->set_bytes_moved(1000);
  description.mutable_launch()->set_flops(500);
  DeviceInfo device = Gpu();
  device.measured_bandwidth_bytes_per_second = 0;
  EXPECT_THAT(Advise(description, device),
              ElementsAre("Arithmetic intensity is 0.5 FLOP/B; the device's bandwidth is not "
                          "measured yet."));
  description.set_grid("");
  description.mutable_launch()->set_waves(0);
  device = {.name = "cpu", .kind = "cpu", .description = "", .multiprocessors = 2};
  device.measured_bandwidth_bytes_per_second = 1e9;
  EXPECT_THAT(Advise(description, device),
              ElementsAre("Arithmetic intensity is 0.5 FLOP/B. Moving its 1000 B at the 1.00 GB/s "
                          "that a copy was measured to reach takes 1.00 us."));
}

}  // namespace
}  // namespace warpcall::cli
