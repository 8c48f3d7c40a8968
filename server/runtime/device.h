// The one door between the engine and hardware. A Device owns memory and makes Streams; the CPU and
// every GPU stand behind the same two classes, so the lane code that tests run without a GPU is the
// code that serves one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/compiled/counts.h"
#include "kernels/device_properties.h"
#include "kernels/op.h"
#include "kernels/plan_cache.h"
#include "kernels/run_counts.h"
#include "proto/common/check.h"

namespace warpcall {

// Owns one piece of memory; move-only. Keeps no more of the allocator than its Release function.
class Buffer {
 public:
  using Release = void (*)(void* owner, void* data, size_t bytes);

  Buffer() = default;
  Buffer(void* data, size_t bytes, Release release, void* owner)
      : data_(data), bytes_(bytes), release_(release), owner_(owner) {
    WARPCALL_DCHECK((data != nullptr || bytes == 0) && release != nullptr, bytes);
  }
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

// Points in a stream's order. A job runs in rounds, one for each piece of its data that is copied
// and worked on by itself; every round passes all four, in this order.
enum class Milestone : uint8_t { kStart, kInputsReady, kKernelDone, kOutputsReady };

struct StreamTimes {
  int64_t h2d_ns = 0;     // the first round's kStart to the last round's kInputsReady
  int64_t kernel_ns = 0;  // kernels, summed over the rounds
  int64_t d2h_ns = 0;     // the first round's kKernelDone to the last round's kOutputsReady
};

struct RecordedCopies {
  // Most bytes of all inputs, or of all outputs, and most copies of either.
  static constexpr size_t kBytesMax = size_t{64} << 10;
  static constexpr size_t kCountMax = 8;

  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  absl::InlinedVector<Copy, 3> inputs;  // to the device
  absl::InlinedVector<Copy, 3> outputs;
};

// An ordered queue of work on one device, used by one thread at a time. Calls enqueue; Synchronize
// waits. After an error that a device does not recover from, every call returns UNAVAILABLE.
class Stream {
 public:
  virtual ~Stream() = default;

  // A thread that serves streams calls this before it uses one; it may lower the thread's priority.
  virtual absl::Status BindThread() = 0;
  // The values of LaunchContext::stream and LaunchContext::libraries for kernels.
  virtual void* native_handle() = 0;
  virtual cuda::Libraries* libraries() { return nullptr; }
  // Allocates device memory for operands and workspaces. RESOURCE_EXHAUSTED names the limit. The
  // memory is freed in the stream's order, and the stream outlives it.
  virtual absl::StatusOr<Buffer> AllocateMemory(size_t bytes) = 0;

  // Opens a job of `rounds` >= 1. A single round runs in the order of the calls. With more, a
  // round's copies in run beside the kernels and copies out of earlier rounds.
  virtual absl::Status Begin(int rounds) = 0;
  virtual absl::Status Mark(Milestone milestone) = 0;
  // Between kStart and kInputsReady.
  virtual absl::Status CopyToDevice(void* device, const void* staging, size_t bytes) = 0;
  // Between kKernelDone and kOutputsReady.
  virtual absl::Status CopyToStaging(void* staging, const void* device, size_t bytes) = 0;
  // Returns when everything enqueued has run.
  virtual absl::Status Synchronize() = 0;
  // Writes 1 to *differs, of AllocateStaging's memory, if two memories of the device, each aligned
  // as operands are, differ in a byte; otherwise leaves it.
  virtual absl::Status Compare(const void* a, const void* b, size_t bytes, uint32_t* differs);
  // Times of the rounds since Begin, or of the replay, once Synchronize has returned.
  virtual StreamTimes Times() = 0;

  // Times the steps of a graph within a round. Null: the stream can't.
  virtual StepClock* step_clock() { return nullptr; }
  // True if that costs so little that every graph may be timed.
  virtual bool times_steps_for_free() const { return false; }
  // Their times in nanoseconds since the clock's Begin, once Synchronize has returned.
  virtual std::vector<int64_t> StepTimes() { return {}; }

  // Returns true if launches can be recorded, for replays that cost less and are timed without the
  // gaps between calls.
  virtual bool records() const { return false; }
  // Records the kernels that `enqueue` puts on the stream, which do not run yet, with copies
  // between staging and device memory before and after them: few and small ones, else it is an
  // INVALID_ARGUMENT. Replay runs them on the same memory, instead of Begin and a round of marks.
  // REQUIRES: records(); an idle stream.
  virtual absl::StatusOr<int> Record(absl::FunctionRef<absl::Status()> enqueue,
                                     const RecordedCopies& copies);
  virtual absl::Status Replay(int recording);
  // Replays a recording without copies as the kernels of a round.
  virtual absl::Status ReplayInRound(int recording);
  virtual void Forget(int recording);
};

// For devices whose memory is the host's, and whose calls return when their work is done.
inline absl::Status Stream::Compare(const void* a, const void* b, size_t bytes, uint32_t* differs) {
  if (bytes > 0 && std::memcmp(a, b, bytes) != 0) *differs = 1;
  return absl::OkStatus();
}
inline absl::StatusOr<int> Stream::Record(absl::FunctionRef<absl::Status()>,
                                          const RecordedCopies&) {
  return absl::UnimplementedError("this device records no launches");
}
inline absl::Status Stream::Replay(int) {
  return absl::UnimplementedError("this device records no launches");
}
inline absl::Status Stream::ReplayInRound(int) {
  return absl::UnimplementedError("this device records no launches");
}
inline void Stream::Forget(int) {}

// One thing that a device did, for people to look at.
struct DeviceActivity {
  enum class Kind : uint8_t { kKernel, kCopy, kSet };

  Kind kind = Kind::kKernel;
  std::string name;      // a kernel's, demangled; "copy to device", ...
  std::string step;      // the graph's step that did it; empty: no step, or not known
  int64_t start_ns = 0;  // MonotonicNs's clock
  int64_t end_ns = 0;
  int64_t stream = 0;  // identifies the stream
  int64_t bytes = 0;   // for copies and memory sets
  int32_t registers_per_thread = 0;
  int64_t shared_memory_bytes = 0;  // per block, static and dynamic
  uint32_t grid[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
};

// Hardware counters of one kernel, as shares of the peak, 0 to 1.
struct KernelCounters {
  std::string name;  // as DeviceActivity's
  double achieved_occupancy = 0;
  double sm_throughput = 0;
  double dram_throughput = 0;
};

// Watches everything that this process does on one device. Used by one thread.
class DeviceProfiler {
 public:
  virtual ~DeviceProfiler() = default;

  virtual absl::Status StartTrace() = 0;
  // Ends the trace and returns its activities by start time. REQUIRES: the device is idle.
  virtual absl::StatusOr<std::vector<DeviceActivity>> StopTrace() = 0;
  // Calls `work`, which launches kernels from any thread and returns when they have run; each
  // kernel may be run several times over, one at a time. Returns the kernels in order of launch.
  // PERMISSION_DENIED and UNAVAILABLE explain why the counters can't be read, and the remedy.
  virtual absl::StatusOr<std::vector<KernelCounters>> Count(
      absl::FunctionRef<absl::Status()> work) = 0;
};

struct MemoryUsage {
  int64_t total_bytes = 0;
  int64_t used_bytes = 0;      // handed out
  int64_t reserved_bytes = 0;  // held by this process, handed out or kept for later
};

// Thread-safe. Outlives its streams and buffers.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProperties& properties() const = 0;
  // Returns true while the device works. An unhealthy device may recover, unless it is lost.
  virtual bool healthy() const = 0;
  // True for good once only a new process of this program could bring the device back.
  virtual bool lost() const { return !healthy(); }
  // Number of times that the device's memory was lost, and with it the tensors that stayed there.
  virtual int64_t memory_losses() const { return healthy() ? 0 : 1; }
  // Calls `on_lost`, on any thread, after each loss that jobs may not notice: that of the memory,
  // before the device is healthy again, and that of the device. Null unregisters; no call runs
  // after the return. Does nothing for devices whose jobs always notice.
  virtual void OnLost([[maybe_unused]] std::function<void()> on_lost) {}
  // Number of times that the process serving the device was restarted.
  virtual int64_t restarts() const { return 0; }
  // Counts the code compiled for the device at run time.
  virtual compiled::Counts compile_counts() const { return {}; }
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  // Allocates host memory that the device copies from and to at full speed (pinned on a GPU). Slow:
  // call it at start only.
  virtual absl::StatusOr<Buffer> AllocateStaging(size_t bytes) = 0;
  // Bytes of the tensors that may stay on the device between requests unless a flag says otherwise;
  // 0: none can stay.
  virtual int64_t resident_bytes_max() const { return 0; }
  // Allocates device memory for such a tensor, from a pool of its own. Every stream may use it, and
  // none does when it is freed. RESOURCE_EXHAUSTED names the limit.
  virtual absl::StatusOr<Buffer> AllocateResident(size_t) {
    return absl::UnimplementedError(
        absl::StrCat("no tensor can stay on ", properties().name, " between requests"));
  }
  // Allocates whole pages of device memory, behind which there are none: a kernel faults there.
  virtual absl::StatusOr<Buffer> AllocateGuarded(size_t) {
    return absl::UnimplementedError(absl::StrCat(properties().name, " guards no memory"));
  }
  // Returns true if a kernel should work in staging memory for operands of `bytes` in total: always
  // on the CPU, for small requests on a GPU. `suits_host_memory` is the implementation's.
  virtual bool KernelsUseStaging(size_t bytes, bool suits_host_memory) const = 0;
  // Operand bytes of one round when a large job is cut into several; 0: never cut.
  virtual size_t round_bytes() const = 0;
  // Returns true if memory comes from a pool of this process, which reuses freed memory at no cost.
  // A lane then keeps none between jobs, and all lanes share the pool.
  virtual bool pools_memory() const { return false; }
  virtual MemoryUsage memory_usage() const = 0;
  // UNIMPLEMENTED if the device has no profiler.
  virtual absl::StatusOr<std::unique_ptr<DeviceProfiler>> CreateProfiler() {
    return absl::UnimplementedError("only GPUs have counters that are read");
  }
  // The plans of its implementations for the problems seen so far.
  PlanCache& plans() { return plans_; }
  // Counts the runs of graphs on all of its streams.
  RunCounts& run_counts() { return run_counts_; }

  // Memory that each stream may keep for graphs. Set before there are streams.
  void SetGraphBytesMax(size_t bytes) { graph_bytes_max_ = bytes; }
  size_t graph_bytes_max() const { return graph_bytes_max_; }

 private:
  PlanCache plans_;
  RunCounts run_counts_;
  size_t graph_bytes_max_ = size_t{256} << 20;
};

}  // namespace warpcall
