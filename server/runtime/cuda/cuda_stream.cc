#include "server/runtime/cuda/cuda_stream.h"

#include <chrono>
#include <utility>

#include "kernels/cuda/stream_kernels.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

// A thread that sleeps is woken 40 to 100 us late: gelu of 4 MiB took 228 us instead of 188 on an
// H200's host when it was waited for awake for 100 us only. Longer jobs than this lose little.
constexpr std::chrono::microseconds kSpin{1000};

// From this size on, a copy takes longer than enqueuing two more stamps.
constexpr size_t kClockBytesMin = size_t{4} << 20;

absl::StatusOr<cuda::StreamHandle> CreateHandle(CudaDevice* device) {
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(device->Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                "creating a stream"));
  return cuda::StreamHandle(stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(CudaDevice* device) {
  RETURN_IF_ERROR(device->MakeCurrent());
  std::unique_ptr<CudaStream> stream(new CudaStream(device));
  ASSIGN_OR_RETURN(stream->compute_, CreateHandle(device));
  ASSIGN_OR_RETURN(stream->copy_in_, CreateHandle(device));
  ASSIGN_OR_RETURN(stream->copy_out_, CreateHandle(device));
  ASSIGN_OR_RETURN(stream->clock_, KernelClock::Create(device, stream->compute_.get()));
  ASSIGN_OR_RETURN(stream->step_clock_, KernelClock::Create(device, stream->compute_.get()));
  ASSIGN_OR_RETURN(stream->recordings_, Recordings::Create(device, stream->compute_.get()));
  return stream;
}

CudaStream::~CudaStream() {
  device_->MakeCurrent().IgnoreError();
  last_ = Last::kUnknown;
  Synchronize().IgnoreError();
}

absl::StatusOr<Buffer> CudaStream::AllocateMemory(size_t bytes) {
  return device_->AllocateMemory(bytes, compute_.get());
}

absl::Status CudaStream::Begin(int rounds) {
  WARPCALL_DCHECK(rounds >= 1, rounds);
  last_ = Last::kUnknown;
  replayed_ = -1;
  replayed_in_round_ = false;
  events_used_ = 0;
  rounds_wanted_ = rounds;
  rounds_.clear();
  copied_ = false;
  copied_in_bytes_ = 0;
  clocked_ = overlapped();
  if (!overlapped()) return absl::OkStatus();
  RETURN_IF_ERROR(clock_->Begin(rounds));
  // Memory was allocated in the order of the compute stream.
  int allocated;
  ASSIGN_OR_RETURN(allocated, Record(compute_.get()));
  RETURN_IF_ERROR(WaitFor(copy_in_.get(), allocated));
  return WaitFor(copy_out_.get(), allocated);
}

absl::StatusOr<cuda::EventHandle> CudaStream::CreateEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(
      device_->Check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "creating an event"));
  return cuda::EventHandle(event);
}

absl::StatusOr<int> CudaStream::Record(cudaStream_t stream) {
  if (events_used_ == static_cast<int>(events_.size())) {
    ASSIGN_OR_RETURN(cuda::EventHandle event, CreateEvent());
    events_.push_back(std::move(event));
  }
  RETURN_IF_ERROR(
      device_->Check(cudaEventRecord(events_[events_used_].get(), stream), "recording an event"));
  return events_used_++;
}

absl::Status CudaStream::WaitFor(cudaStream_t stream, int event) {
  WARPCALL_DCHECK(event >= 0 && event < events_used_, event, events_used_);
  return device_->Check(cudaStreamWaitEvent(stream, events_[event].get(), 0),
                        "ordering two streams");
}

absl::Status CudaStream::Copy(cudaStream_t stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  copied_ = true;
  return device_->Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                        "enqueuing a copy");
}

absl::Status CudaStream::CopyToDevice(void* device, const void* staging, size_t bytes) {
  copied_in_bytes_ += bytes;
  return Copy(overlapped() ? copy_in_.get() : compute_.get(), device, staging, bytes);
}

absl::Status CudaStream::CopyToStaging(void* staging, const void* device, size_t bytes) {
  return Copy(overlapped() ? copy_out_.get() : compute_.get(), staging, device, bytes);
}

absl::Status CudaStream::Compare(const void* a, const void* b, size_t bytes, uint32_t* differs) {
  return cuda::EnqueueCompare(compute_.get(), {a, b, bytes}, differs);
}

absl::Status CudaStream::Mark(Milestone milestone) {
  if (milestone == Milestone::kStart) rounds_.emplace_back();
  WARPCALL_CHECK(!rounds_.empty() && static_cast<int>(rounds_.size()) <= rounds_wanted_,
                 rounds_.size(), rounds_wanted_);
  RETURN_IF_ERROR(overlapped() ? MarkOverlapped(milestone) : MarkInOrder(milestone));
  // The last round's outputs come after everything else of a job, and its event is the last.
  if (milestone == Milestone::kOutputsReady && static_cast<int>(rounds_.size()) == rounds_wanted_)
    last_ = Last::kEvent;
  return absl::OkStatus();
}

absl::Status CudaStream::MarkInOrder(Milestone milestone) {
  if (milestone == Milestone::kInputsReady) clocked_ = copied_in_bytes_ >= kClockBytesMin;
  // Between the two events around the kernel.
  if (clocked_ && milestone != Milestone::kInputsReady) RETURN_IF_ERROR(MarkClock(milestone));
  Round& round = rounds_.back();
  int event = events_used_ - 1;
  // An event costs about a microsecond: none where no copy lies since the last.
  if (milestone == Milestone::kStart || milestone == Milestone::kKernelDone || copied_) {
    ASSIGN_OR_RETURN(event, Record(compute_.get()));
  }
  copied_ = false;
  switch (milestone) {
    case Milestone::kStart:
      round.start = event;
      break;
    case Milestone::kInputsReady:
      round.inputs_ready = round.kernel_begin = event;
      if (clocked_) return MarkClock(milestone);
      break;
    case Milestone::kKernelDone:
      round.kernel_done = event;
      break;
    case Milestone::kOutputsReady:
      round.outputs_ready = event;
      break;
  }
  return absl::OkStatus();
}

absl::Status CudaStream::MarkClock(Milestone milestone) {
  if (milestone == Milestone::kOutputsReady) {
    copied_ = true;
    return clock_->Fetch(compute_.get());
  }
  if (milestone == Milestone::kInputsReady) RETURN_IF_ERROR(clock_->Begin(1));
  return clock_->Stamp();
}

absl::Status CudaStream::MarkOverlapped(Milestone milestone) {
  Round& round = rounds_.back();
  if (milestone == Milestone::kStart) {
    ASSIGN_OR_RETURN(round.start, Record(copy_in_.get()));
  } else if (milestone == Milestone::kInputsReady) {
    ASSIGN_OR_RETURN(round.inputs_ready, Record(copy_in_.get()));
    RETURN_IF_ERROR(WaitFor(compute_.get(), round.inputs_ready));
    RETURN_IF_ERROR(clock_->Stamp());
  } else if (milestone == Milestone::kKernelDone) {
    RETURN_IF_ERROR(clock_->Stamp());
    ASSIGN_OR_RETURN(round.kernel_done, Record(compute_.get()));
    RETURN_IF_ERROR(WaitFor(copy_out_.get(), round.kernel_done));
    if (static_cast<int>(rounds_.size()) == rounds_wanted_)
      RETURN_IF_ERROR(clock_->Fetch(copy_out_.get()));
  } else {
    ASSIGN_OR_RETURN(round.outputs_ready, Record(copy_out_.get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> CudaStream::Record(absl::FunctionRef<absl::Status()> enqueue,
                                       const RecordedCopies& copies) {
  return recordings_->Record(enqueue, copies);
}

absl::Status CudaStream::Replay(int recording) {
  rounds_.clear();
  replayed_ = recording;
  replayed_in_round_ = false;
  last_ = Last::kUnknown;
  RETURN_IF_ERROR(recordings_->Replay(recording));
  last_ = Last::kReplay;
  return absl::OkStatus();
}

absl::Status CudaStream::ReplayInRound(int recording) {
  WARPCALL_DCHECK(rounds_.size() == 1 && !overlapped(), rounds_.size());
  replayed_ = recording;
  replayed_in_round_ = true;
  return recordings_->Replay(recording);
}

void CudaStream::Forget(int recording) { recordings_->Forget(recording); }

absl::Status CudaStream::Await(absl::FunctionRef<cudaError_t()> query,
                               absl::FunctionRef<cudaError_t()> wait) {
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  cudaError_t error;
  while ((error = query()) == cudaErrorNotReady && std::chrono::steady_clock::now() < give_up) {
  }
  if (error == cudaErrorNotReady) error = wait();
  return device_->Check(error, "waiting for the device");
}

absl::Status CudaStream::Synchronize() {
  // Later work may bypass this class, such as a plan's own trials, so `last_` is unknown.
  const Last last = std::exchange(last_, Last::kUnknown);
  if (last == Last::kEvent) {
    WARPCALL_CHECK(events_used_ > 0);
    const cudaEvent_t event = events_[events_used_ - 1].get();
    return Await([=] { return cudaEventQuery(event); },
                 [=] { return cudaEventSynchronize(event); });
  }
  if (last == Last::kReplay)
    return Await(
        [this] { return recordings_->IsDone(replayed_) ? cudaSuccess : cudaErrorNotReady; },
        [this] { return cudaStreamSynchronize(compute_.get()); });
  absl::Status status;
  for (const cuda::StreamHandle* stream : {&copy_in_, &compute_, &copy_out_})
    status.Update(device_->Check(cudaStreamSynchronize(stream->get()), "waiting for the device"));
  return status;
}

int64_t CudaStream::ElapsedNs(int from, int to) {
  WARPCALL_DCHECK(from >= 0 && from <= to && to < events_used_, from, to, events_used_);
  float ms = 0;
  if (from == to ||
      cudaEventElapsedTime(&ms, events_[from].get(), events_[to].get()) != cudaSuccess)
    return 0;
  return static_cast<int64_t>(static_cast<double>(ms) * 1e6);
}

StreamTimes CudaStream::Times() {
  StreamTimes times;
  if (replayed_ >= 0) times = recordings_->Times(replayed_);
  if (rounds_.empty()) return times;
  times.h2d_ns = ElapsedNs(rounds_.front().start, rounds_.back().inputs_ready);
  // A recording has times of its own.
  if (!replayed_in_round_)
    times.kernel_ns =
        clocked_ ? clock_->KernelNs() : ElapsedNs(rounds_[0].kernel_begin, rounds_[0].kernel_done);
  times.d2h_ns = ElapsedNs(rounds_.front().kernel_done, rounds_.back().outputs_ready);
  return times;
}

}  // namespace warpcall
