// The device that is always there: staging memory is its memory, and a stream runs what it is given
// at once, on the caller's thread and the pool that the device's kernels share.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "kernels/cpu/thread_pool.h"
#include "server/runtime/device.h"

namespace warpcall {

class CpuDevice final : public Device {
 public:
  // Returns the threads this process may use; in a container fewer than the machine has.
  static int UsableThreads();

  // Computing threads give way to those that talk to clients. Otherwise a few large requests would
  // add a scheduler's time slices, some milliseconds each, to the latency of every small one.
  static constexpr int kServingNice = 10;

  static constexpr int64_t kResidentBytesMax = int64_t{1} << 30;  // resident_bytes_max

  // `threads` >= 1 for its kernels, which run at `nice`, as those do that use its streams.
  explicit CpuDevice(int threads, std::string name = "cpu", int nice = kServingNice);

  const DeviceProperties& properties() const override { return properties_; }
  bool healthy() const override { return true; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;
  // Address space only: pages appear when they are first written.
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override;
  int64_t resident_bytes_max() const override { return kResidentBytesMax; }
  absl::StatusOr<Buffer> AllocateResident(size_t bytes) override { return AllocateMemory(bytes); }
  bool KernelsUseStaging(size_t, bool) const override { return true; }
  size_t round_bytes() const override { return 0; }
  MemoryUsage memory_usage() const override;

  // For its streams. The buffer must not outlive the device.
  absl::StatusOr<Buffer> AllocateMemory(size_t bytes);

 private:
  DeviceProperties properties_;
  const int nice_;
  cpu::ThreadPool pool_;
  std::atomic<int64_t> used_bytes_{0};
};

}  // namespace warpcall
