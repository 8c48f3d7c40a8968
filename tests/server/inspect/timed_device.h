// A device with a clock of its own, which only launches and a test move: measurements on it do not
// depend on the machine.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "server/runtime/device.h"

namespace warpcall::testing {

class TimedDevice final : public Device {
 public:
  explicit TimedDevice(DeviceKind kind = DeviceKind::kCpu) {
    properties_.name = "timed:0";
    properties_.kind = kind;
  }
  explicit TimedDevice(DeviceProperties properties) : properties_(std::move(properties)) {}

  // Called by a launch, which gets this device as its stream.
  void Pass(int64_t ns) { now_ns_ += ns; }
  int64_t now_ns() const { return now_ns_; }
  // All that was ever asked for.
  size_t allocated_bytes() const { return allocated_bytes_; }

  const DeviceProperties& properties() const override { return properties_; }
  bool healthy() const override { return true; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return std::make_unique<TimedStream>(this);
  }
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override { return Allocate(bytes); }
  bool KernelsUseStaging(size_t, bool) const override { return true; }
  size_t round_bytes() const override { return 0; }
  MemoryUsage memory_usage() const override { return {}; }

 private:
  static Buffer Allocate(size_t bytes) {
    return Buffer(
        std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), bytes,
        [](void*, void* data, size_t) { std::free(data); }, nullptr);
  }

  class TimedStream final : public Stream {
   public:
    explicit TimedStream(TimedDevice* device) : device_(device) {}
    absl::Status BindThread() override { return absl::OkStatus(); }
    void* native_handle() override { return device_; }
    absl::StatusOr<Buffer> AllocateMemory(size_t bytes) override {
      device_->allocated_bytes_ += bytes;
      return Allocate(bytes);
    }
    absl::Status Begin(int) override { return absl::OkStatus(); }
    absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override {
      std::memcpy(to, from, bytes);
      return absl::OkStatus();
    }
    absl::Status CopyToStaging(void* to, const void* from, size_t bytes) override {
      return CopyToDevice(to, from, bytes);
    }
    absl::Status Mark(Milestone milestone) override {
      if (milestone == Milestone::kInputsReady) marked_ns_ = device_->now_ns();
      if (milestone == Milestone::kKernelDone) times_.kernel_ns = device_->now_ns() - marked_ns_;
      return absl::OkStatus();
    }
    absl::Status Synchronize() override { return absl::OkStatus(); }
    StreamTimes Times() override { return times_; }

   private:
    TimedDevice* const device_;
    int64_t marked_ns_ = 0;
    StreamTimes times_;
  };

  DeviceProperties properties_;
  std::atomic<int64_t> now_ns_{1'000'000'000};
  size_t allocated_bytes_ = 0;
};

}  // namespace warpcall::testing
