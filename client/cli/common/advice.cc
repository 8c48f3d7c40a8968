#include "client/cli/common/advice.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

constexpr char kGpu[] = "cuda";
// A share of the device's slots for blocks, over the whole launch, that is worth a word.
constexpr double kEmptyShareMin = 0.1;
// With fewer, a multiprocessor has little else to do while some of its blocks wait for memory or
// for each other, and one that takes longer than the rest is seen.
constexpr double kBlocksMin = 4;
// At which GPUs since Volta run at least, so that what follows from it is a lower bound: 1.4
// to 2.6.
constexpr double kClockHertz = 1.4e9;

// Float32 lanes of a multiprocessor, of 64 in the architectures for data centres before Hopper.
int Lanes(const std::string& compute_capability) {
  return compute_capability == "8.0" || absl::StartsWith(compute_capability, "7.") ? 64 : 128;
}

// Returns the product of an extent such as "132x1x1"; 0 for other text.
double Product(const std::string& extent) {
  double product = 1;
  for (const absl::string_view text : absl::StrSplit(extent, 'x')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(text, &size)) return 0;
    product *= static_cast<double>(size);
  }
  return product;
}

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

void AdviseOnWaves(double waves, std::vector<std::string>* advice) {
  const double all = std::ceil(waves);
  if (waves <= 0 || (all - waves) / all < kEmptyShareMin) return;
  if (all == 1) {
    advice->push_back(absl::StrCat("The blocks fill ", Percent(waves),
                                   " of the device: smaller ones, or more of them, would use the "
                                   "rest."));
    return;
  }
  advice->push_back(absl::StrCat("The last of ", all, " waves fills ", Percent(waves - all + 1),
                                 " of the device: ", Percent((all - waves) / all),
                                 " of all slots for blocks stay empty."));
}

void AdviseOnBlocks(const std::string& grid, const client::DeviceInfo& device,
                    std::vector<std::string>* advice) {
  const double blocks = Product(grid);
  if (blocks == 0 || device.multiprocessors == 0) return;
  const double each = blocks / device.multiprocessors;
  if (each >= kBlocksMin) return;
  advice->push_back(absl::StrFormat(
      "%.0f blocks on %d multiprocessors are %.1f for each; with fewer than %.0f there is little "
      "to do while some wait.",
      blocks, device.multiprocessors, each, kBlocksMin));
}

void AdviseOnSpills(const client::Description& description, std::vector<std::string>* advice) {
  if (description.local_memory_bytes() == 0) return;
  advice->push_back(absl::StrCat(
      description.local_memory_bytes(), " bytes of each thread do not fit into its ",
      description.registers_per_thread(), " registers and go through the caches: spills."));
}

void AdviseOnRoofline(const client::Description& description, const client::DeviceInfo& device,
                      std::vector<std::string>* advice) {
  const auto& launch = description.launch();
  if (launch.bytes_moved() == 0) return;
  const auto bytes = static_cast<double>(launch.bytes_moved());
  const double intensity = static_cast<double>(launch.flops()) / bytes;
  const double bandwidth = device.measured_bandwidth_bytes_per_second;
  std::string text = absl::StrFormat("Arithmetic intensity is %.3g FLOP/B", intensity);
  if (!(bandwidth > 0)) {
    advice->push_back(text + "; the device's bandwidth is not measured yet.");
    return;
  }
  if (const double flops = Float32FlopsMin(device); flops > 0) {
    const bool memory = intensity < flops / bandwidth;
    absl::StrAppendFormat(&text,
                          ", %s the %.3g FLOP/B where float32 lanes, %s without tensor cores, "
                          "would %s: %s.",
                          memory ? "below" : "above", flops / bandwidth, HumanRate(flops, "FLOP/s"),
                          memory ? "become the limit" : "still keep up",
                          memory ? "memory is the limit" : "arithmetic is the limit");
  } else {
    text += ".";
  }
  advice->push_back(absl::StrCat(text, " Moving its ", HumanBytes(bytes), " at the ",
                                 HumanRate(bandwidth, "B/s"),
                                 " that a copy was measured to reach "
                                 "takes ",
                                 HumanTime(1e9 * bytes / bandwidth), "."));
}

}  // namespace

std::vector<std::string> AdviseOnLaunch(const client::Description& description,
                                        const client::DeviceInfo& device) {
  std::vector<std::string> advice;
  AdviseOnWaves(description.launch().waves(), &advice);
  AdviseOnBlocks(description.grid(), device, &advice);
  AdviseOnSpills(description, &advice);
  return advice;
}

std::vector<std::string> Advise(const client::Description& description,
                                const client::DeviceInfo& device) {
  std::vector<std::string> advice = AdviseOnLaunch(description, device);
  AdviseOnRoofline(description, device, &advice);
  return advice;
}

double Float32FlopsMin(const client::DeviceInfo& device) {
  if (device.kind != kGpu) return 0;
  return 2 * kClockHertz * Lanes(device.compute_capability) * device.multiprocessors;
}

}  // namespace warpcall::cli
