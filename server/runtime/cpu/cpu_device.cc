#include "server/runtime/cpu/cpu_device.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "server/runtime/cpu/control_group.h"

namespace warpcall {
namespace {

// From this size on, memory uses huge pages: a fault every 2 MiB instead of every 4 KiB.
constexpr size_t kHugePageBytes = size_t{2} << 20;
// From this size on, memory is mapped by itself: the system allows some 65 000 mappings.
constexpr size_t kMappedBytes = size_t{128} << 10;

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string ModelName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "CPU";
}

absl::StatusOr<void*> Map(size_t bytes) {
  if (bytes < kMappedBytes) {
    const size_t rounded =
        (bytes + kOperandAlignmentBytes - 1) / kOperandAlignmentBytes * kOperandAlignmentBytes;
    void* const memory = std::aligned_alloc(kOperandAlignmentBytes, rounded);
    if (memory != nullptr) return memory;
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refused ", bytes, " bytes of memory"));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refused ", bytes, " bytes of memory: ", strerror(errno)));
  if (bytes >= kHugePageBytes) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void Unmap(void* memory, size_t bytes) {
  if (bytes < kMappedBytes)
    std::free(memory);
  else
    munmap(memory, bytes);
}

// Steps have run when the calls that enqueue them return.
class CpuStepClock final : public StepClock {
 public:
  absl::Status Begin(int steps) override {
    stamps_.clear();
    stamps_.reserve(2 * static_cast<size_t>(steps));
    return absl::OkStatus();
  }
  absl::Status Stamp() override {
    stamps_.push_back(NowNs());
    return absl::OkStatus();
  }
  absl::Status End() override { return absl::OkStatus(); }
  std::vector<int64_t> Times() const {
    std::vector<int64_t> times;
    for (size_t i = 0; i + 1 < stamps_.size(); i += 2) times.push_back(stamps_[i + 1] - stamps_[i]);
    return times;
  }

 private:
  std::vector<int64_t> stamps_;
};

class CpuStream final : public Stream {
 public:
  CpuStream(CpuDevice* device, cpu::ThreadPool* pool, int nice)
      : device_(device), pool_(pool), nice_(nice) {}

  absl::Status BindThread() override {
    cpu::LowerPriority(nice_);
    return absl::OkStatus();
  }
  void* native_handle() override { return pool_; }
  absl::StatusOr<Buffer> AllocateMemory(size_t bytes) override {
    return device_->AllocateMemory(bytes);
  }
  absl::Status Begin(int rounds) override {
    WARPCALL_DCHECK(rounds >= 1, rounds);
    times_ = {};
    marked_ = Milestone::kOutputsReady;
    return absl::OkStatus();
  }
  absl::Status CopyToDevice(void* device, const void* staging, size_t bytes) override {
    WARPCALL_DCHECK(marked_ == Milestone::kStart, marked_);
    return Copy(device, staging, bytes);
  }
  absl::Status CopyToStaging(void* staging, const void* device, size_t bytes) override {
    WARPCALL_DCHECK(marked_ == Milestone::kKernelDone, marked_);
    return Copy(staging, device, bytes);
  }
  absl::Status Mark(Milestone milestone) override {
    WARPCALL_DCHECK(static_cast<int>(milestone) == (static_cast<int>(marked_) + 1) % 4, milestone,
                    marked_);
    marked_ = milestone;
    const int64_t now_ns = NowNs();
    if (milestone == Milestone::kInputsReady) times_.h2d_ns += now_ns - marked_ns_;
    if (milestone == Milestone::kKernelDone) times_.kernel_ns += now_ns - marked_ns_;
    if (milestone == Milestone::kOutputsReady) times_.d2h_ns += now_ns - marked_ns_;
    marked_ns_ = now_ns;
    return absl::OkStatus();
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  StreamTimes Times() override { return times_; }
  StepClock* step_clock() override { return &step_clock_; }
  bool times_steps_for_free() const override { return true; }
  std::vector<int64_t> StepTimes() override { return step_clock_.Times(); }

 private:
  static absl::Status Copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

  CpuDevice* const device_;
  cpu::ThreadPool* const pool_;
  const int nice_;
  Milestone marked_ = Milestone::kOutputsReady;  // last: all four are passed in order
  int64_t marked_ns_ = 0;
  StreamTimes times_;
  CpuStepClock step_clock_;
};

}  // namespace

int CpuDevice::UsableThreads() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

CpuDevice::CpuDevice(int threads, std::string name, int nice) : nice_(nice), pool_(threads, nice) {
  properties_.name = std::move(name);
  properties_.kind = DeviceKind::kCpu;
  properties_.description = ModelName();
  properties_.memory_bytes = MemoryLimitBytes();
  properties_.multiprocessors = threads;
  properties_.l2_bytes = std::max<int64_t>(0, sysconf(_SC_LEVEL2_CACHE_SIZE));
}

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::CreateStream() {
  return std::make_unique<CpuStream>(this, &pool_, nice_);
}

absl::StatusOr<Buffer> CpuDevice::AllocateStaging(size_t bytes) {
  if (bytes == 0) return Buffer();
  absl::StatusOr<void*> memory = Map(bytes);
  if (!memory.ok()) return memory.status();
  // No owner: responses that are still being sent may outlive the device.
  return Buffer(
      *memory, bytes, [](void*, void* data, size_t size) { Unmap(data, size); }, nullptr);
}

absl::StatusOr<Buffer> CpuDevice::AllocateMemory(size_t bytes) {
  if (bytes == 0) return Buffer();
  const int64_t used =
      used_bytes_.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes);
  absl::StatusOr<void*> memory =
      used <= properties_.memory_bytes
          ? Map(bytes)
          : absl::ResourceExhaustedError(absl::StrCat(
                "the work needs ", bytes, " bytes and ", used - static_cast<int64_t>(bytes),
                " are in use; the device has ", properties_.memory_bytes, " bytes of memory"));
  if (!memory.ok()) {
    used_bytes_.fetch_sub(static_cast<int64_t>(bytes));
    return memory.status();
  }
  return Buffer(
      *memory, bytes,
      [](void* owner, void* data, size_t size) {
        Unmap(data, size);
        const int64_t before =
            static_cast<CpuDevice*>(owner)->used_bytes_.fetch_sub(static_cast<int64_t>(size));
        WARPCALL_DCHECK(before >= static_cast<int64_t>(size), before, size);
      },
      this);
}

MemoryUsage CpuDevice::memory_usage() const {
  const int64_t used = used_bytes_.load();
  return {properties_.memory_bytes, used, used};
}

}  // namespace warpcall
