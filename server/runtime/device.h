// The one door between the engine and hardware. A Device owns memory and makes Streams; the CPU and
// every GPU stand behind the same two classes, so the lane code that tests run without a GPU is the
// code that serves one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_properties.h"

namespace warpcall {

// Owns one piece of memory; move-only. Knows nothing of who allocated it but how to give it back.
class Buffer {
 public:
  using Release = void (*)(void* owner, void* data, size_t bytes);

  Buffer() = default;
  Buffer(void* data, size_t bytes, Release release, void* owner)
      : data_(data), bytes_(bytes), release_(release), owner_(owner) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~Buffer() {
    if (release_ != nullptr) release_(owner_, data_, bytes_);
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Release release_ = nullptr;
  void* owner_ = nullptr;
};

// Points in a stream's order whose times the lane reads back.
enum class Milestone : uint8_t { kStart, kInputsReady, kKernelDone, kOutputsReady };
inline constexpr int kMilestoneCount = 4;

// An ordered queue of work on one device, used by one thread. Calls enqueue; Synchronize waits.
// After an error that a device does not recover from, every call returns UNAVAILABLE.
class Stream {
 public:
  virtual ~Stream() = default;

  // What kernels get as LaunchContext::stream.
  virtual void* native_handle() = 0;
  virtual absl::Status CopyToDevice(void* device, const void* staging, size_t bytes) = 0;
  virtual absl::Status CopyToStaging(void* staging, const void* device, size_t bytes) = 0;
  virtual absl::Status Mark(Milestone milestone) = 0;
  // Returns when everything enqueued has run.
  virtual absl::Status Synchronize() = 0;
  // Device time between two milestones marked before the last Synchronize.
  virtual int64_t ElapsedNs(Milestone from, Milestone to) = 0;
};

struct MemoryUsage {
  int64_t total_bytes = 0;
  int64_t used_bytes = 0;
};

// Thread-safe. Outlives its streams and buffers.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProperties& properties() const = 0;
  // False for good once the device was lost.
  virtual bool healthy() const = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  // Host memory that the device copies from and to at full speed (pinned on a GPU). Slow: at start
  // only.
  virtual absl::StatusOr<Buffer> AllocateStaging(size_t bytes) = 0;
  // Device memory for operands and workspaces. RESOURCE_EXHAUSTED names the limit.
  virtual absl::StatusOr<Buffer> AllocateMemory(size_t bytes) = 0;
  // Whether kernels should work on staging memory itself when a job's operands total `bytes`:
  // always on the CPU, for small requests on a GPU.
  virtual bool KernelsUseStaging(size_t bytes) const = 0;
  virtual MemoryUsage memory_usage() const = 0;
};

}  // namespace warpcall
