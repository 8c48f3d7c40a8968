// A lane's queue on a GPU. A job of one round uses one CUDA stream; with more rounds, copies in and
// out have streams of their own, and events keep each round's order.
#pragma once

#include <vector>

#include "server/runtime/cuda/cuda_device.h"
#include "server/runtime/cuda/cuda_handles.h"
#include "server/runtime/cuda/kernel_clock.h"
#include "server/runtime/cuda/recordings.h"

namespace warpcall {

class CudaStream final : public Stream {
 public:
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(CudaDevice* device);
  ~CudaStream() override;

  absl::Status BindThread() override { return device_->MakeCurrent(); }
  void* native_handle() override { return compute_.get(); }
  cuda::Libraries* libraries() override { return device_->libraries(); }
  absl::StatusOr<Buffer> AllocateMemory(size_t bytes) override;
  absl::Status Begin(int rounds) override;
  absl::Status Mark(Milestone milestone) override;
  absl::Status CopyToDevice(void* device, const void* staging, size_t bytes) override;
  absl::Status CopyToStaging(void* staging, const void* device, size_t bytes) override;
  absl::Status Compare(const void* a, const void* b, size_t bytes, uint32_t* differs) override;
  absl::Status Synchronize() override;
  StreamTimes Times() override;
  StepClock* step_clock() override { return step_clock_.get(); }
  std::vector<int64_t> StepTimes() override { return step_clock_->Times(); }
  bool records() const override { return true; }
  absl::StatusOr<int> Record(absl::FunctionRef<absl::Status()> enqueue,
                             const RecordedCopies& copies) override;
  absl::Status Replay(int recording) override;
  absl::Status ReplayInRound(int recording) override;
  void Forget(int recording) override;

 private:
  // Indices into events_, of one round. Neighbours are the same where nothing lies between them.
  struct Round {
    int start = 0;
    int inputs_ready = 0;
    int kernel_begin = 0;  // unused where the clock times the kernel
    int kernel_done = 0;
    int outputs_ready = 0;
  };

  // The last piece of work enqueued: once it has run, all work has.
  enum class Last : uint8_t { kUnknown, kEvent, kReplay };

  explicit CudaStream(CudaDevice* device) : device_(device) {}
  bool overlapped() const { return rounds_wanted_ > 1; }
  // Records the next event on `stream` and returns its index.
  absl::StatusOr<int> Record(cudaStream_t stream);
  absl::Status WaitFor(cudaStream_t stream, int event);
  absl::Status Copy(cudaStream_t stream, void* to, const void* from, size_t bytes);
  absl::Status MarkInOrder(Milestone milestone);
  absl::Status MarkOverlapped(Milestone milestone);
  // Stamps the kernel of a job of one round whose copies in hide the enqueuing of the stamps.
  absl::Status MarkClock(Milestone milestone);
  absl::StatusOr<cuda::EventHandle> CreateEvent();
  // Polls `query` for a while, then sleeps in `wait`.
  absl::Status Await(absl::FunctionRef<cudaError_t()> query, absl::FunctionRef<cudaError_t()> wait);
  int64_t ElapsedNs(int from, int to);

  CudaDevice* const device_;
  cuda::StreamHandle compute_;
  cuda::StreamHandle copy_in_;
  cuda::StreamHandle copy_out_;
  std::unique_ptr<KernelClock> clock_;
  std::unique_ptr<KernelClock> step_clock_;  // beside clock_, which may time all steps together
  std::vector<cuda::EventHandle> events_;    // grows to what the largest job needed
  int events_used_ = 0;                      // since Begin
  int rounds_wanted_ = 1;
  bool copied_ = false;         // since the last milestone
  size_t copied_in_bytes_ = 0;  // since Begin
  bool clocked_ = false;        // kernels are timed by the clock, not by events
  std::vector<Round> rounds_;
  std::unique_ptr<Recordings> recordings_;
  int replayed_ = -1;  // since Begin: none
  bool replayed_in_round_ = false;
  Last last_ = Last::kUnknown;
};

}  // namespace warpcall
