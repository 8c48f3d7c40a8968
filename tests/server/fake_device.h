// A device that a test controls: it counts its memory, keeps device memory apart from staging, and
// fails where a test says so.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/runtime/device.h"

namespace warpcall::testing {

class FakeDevice : public Device {
 public:
  // Shared with the test, which outlives the device.
  struct Control {
    std::atomic<bool> lost{false};
    std::atomic<bool> kernels_use_staging{false};  // for operands of up to so many bytes in all:
    std::atomic<size_t> use_staging_bytes_max{std::numeric_limits<size_t>::max()};
    std::atomic<int64_t> memory_limit_bytes{int64_t{1} << 40};
    std::atomic<int64_t> memory_used_bytes{0};
    std::atomic<size_t> round_bytes{0};
    std::atomic<bool> pools_memory{false};
    std::atomic<int> copies{0};
    std::atomic<int> rounds{0};  // since the start
    std::atomic<bool> records{false};
    std::atomic<int> recordings{0};
    RecordedCopies recorded_copies = {};  // of the last recording
    std::atomic<int> replays{0};
    // The test's own memory for so many bytes; null: other memory.
    std::function<void*(size_t bytes)> memory = [](size_t) { return nullptr; };
    // Takes that memory back.
    std::function<void(void* data)> take_back = [](void*) {};

    // For kernels of a test, whose LaunchContext::stream is this: runs `work` at once, or at each
    // replay of what is being recorded.
    void Launch(std::function<void()> work) {
      if (!records_now) return work();
      recorded_work.back().push_back(std::move(work));
    }
    bool records_now = false;
    std::vector<std::vector<std::function<void()>>> recorded_work = {};  // by recording
    std::vector<RecordedCopies> copies_of = {};                          // likewise

    // Called by every stream operation with its
    // name; the operation returns its result.
    std::function<absl::Status(const char* operation)> on_operation = [](const char*) {
      return absl::OkStatus();
    };
  };

  FakeDevice(Control* control, std::string name, DeviceKind kind = DeviceKind::kCpu)
      : control_(control) {
    properties_.name = std::move(name);
    properties_.kind = kind;
    properties_.description = "Fake 9000";
    properties_.multiprocessors = 7;
    properties_.memory_bytes = int64_t{1} << 40;
  }

  const DeviceProperties& properties() const override { return properties_; }
  bool healthy() const override { return !control_->lost; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return std::make_unique<FakeStream>(control_);
  }
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override {
    return Buffer(
        std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), bytes,
        [](void*, void* data, size_t) { std::free(data); }, nullptr);
  }
  absl::StatusOr<Buffer> AllocateResident(size_t bytes) override { return AllocateStaging(bytes); }
  bool KernelsUseStaging(size_t bytes, bool) const override {
    return control_->kernels_use_staging && bytes <= control_->use_staging_bytes_max;
  }
  size_t round_bytes() const override { return control_->round_bytes; }
  bool pools_memory() const override { return control_->pools_memory; }
  MemoryUsage memory_usage() const override {
    return {control_->memory_limit_bytes, control_->memory_used_bytes, control_->memory_used_bytes};
  }

 private:
  class FakeStream final : public Stream {
   public:
    explicit FakeStream(Control* control) : control_(control) {}
    absl::Status BindThread() override { return absl::OkStatus(); }
    void* native_handle() override { return control_; }
    absl::StatusOr<Buffer> AllocateMemory(size_t bytes) override {
      const auto wanted = static_cast<int64_t>(bytes);
      if (control_->memory_used_bytes + wanted > control_->memory_limit_bytes)
        return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes wanted, the device has ",
                                                         control_->memory_limit_bytes.load()));
      control_->memory_used_bytes += wanted;
      if (void* const own = control_->memory(bytes); own != nullptr)
        return Buffer(
            own, bytes,
            [](void* owner, void* data, size_t size) {
              static_cast<Control*>(owner)->memory_used_bytes -= static_cast<int64_t>(size);
              static_cast<Control*>(owner)->take_back(data);
            },
            control_);
      return Buffer(
          std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), bytes,
          [](void* owner, void* data, size_t size) {
            static_cast<Control*>(owner)->memory_used_bytes -= static_cast<int64_t>(size);
            std::free(data);
          },
          control_);
    }
    absl::Status Begin(int rounds) override {
      control_->rounds += rounds;
      return control_->on_operation("begin");
    }
    absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override {
      return Copy(to, from, bytes, "h2d");
    }
    absl::Status CopyToStaging(void* to, const void* from, size_t bytes) override {
      return Copy(to, from, bytes, "d2h");
    }
    absl::Status Mark(Milestone) override { return control_->on_operation("mark"); }
    absl::Status Synchronize() override { return control_->on_operation("synchronize"); }
    StreamTimes Times() override { return {100, 200, 300}; }
    bool records() const override { return control_->records; }
    absl::StatusOr<int> Record(absl::FunctionRef<absl::Status()> enqueue,
                               const RecordedCopies& copies) override {
      control_->records_now = true;
      control_->recorded_work.emplace_back();
      const absl::Status status = enqueue();
      control_->records_now = false;
      if (!status.ok()) return status;
      control_->recorded_copies = copies;
      control_->copies_of.resize(control_->recorded_work.size());
      control_->copies_of.back() = copies;
      ++control_->recordings;
      return static_cast<int>(control_->recorded_work.size()) - 1;
    }
    absl::Status Replay(int recording) override {
      const RecordedCopies& copies = control_->copies_of[static_cast<size_t>(recording)];
      for (const auto& copy : copies.inputs) std::memcpy(copy.to, copy.from, copy.bytes);
      if (absl::Status status = ReplayInRound(recording); !status.ok()) return status;
      for (const auto& copy : copies.outputs) std::memcpy(copy.to, copy.from, copy.bytes);
      return absl::OkStatus();
    }
    absl::Status ReplayInRound(int recording) override {
      ++control_->replays;
      for (const auto& work : control_->recorded_work[static_cast<size_t>(recording)]) work();
      return control_->on_operation("replay");
    }
    void Forget(int) override {}

   private:
    absl::Status Copy(void* to, const void* from, size_t bytes, const char* name) {
      if (absl::Status status = control_->on_operation(name); !status.ok()) return status;
      ++control_->copies;
      std::memcpy(to, from, bytes);
      return absl::OkStatus();
    }
    Control* const control_;
  };

  Control* const control_;
  DeviceProperties properties_;
};

}  // namespace warpcall::testing
