#include "server/worker/remote_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/engine/retry_pushback.h"

namespace warpcall::worker {

// Sends a job to its lane's socket and waits for the answer.
class RemoteExecutor final : public Executor {
 public:
  RemoteExecutor(RemoteDevice* device, int socket) : device_(device), socket_(socket) {}

  absl::Status BindThread() override { return absl::OkStatus(); }

  absl::Status Run(const Job& job, absl::Span<const StagingRange> staging) override {
    if (!device_->healthy())
      return absl::UnavailableError(absl::StrCat(device_->properties().name, " was lost"));
    ASSIGN_OR_RETURN(RunRequest request, ToWire(job));
    for (size_t i = 0; i < staging.size(); ++i)
      request.offsets[i] = staging[i].bytes == 0
                               ? 0
                               : static_cast<uint64_t>(staging[i].data - device_->staging_memory_);
    absl::Status sent = Send(socket_, request);
    absl::StatusOr<RunReply> reply =
        sent.ok() ? Receive<RunReply>(socket_) : absl::StatusOr<RunReply>(sent);
    const absl::Status received = reply.ok() ? CheckReply(*reply) : reply.status();
    if (!received.ok()) {
      device_->MarkLost();
      return absl::UnavailableError(
          absl::StrCat(device_->properties().name, ": ", received.message()));
    }
    device_->Note(*reply);
    RequestTrace& trace = *job.trace;
    trace.reject_reason = reply->reject_reason;
    trace.h2d_ns = reply->h2d_ns;
    trace.kernel_ns = reply->kernel_ns;
    trace.d2h_ns = reply->d2h_ns;
    trace.device_ns = reply->device_ns;
    trace.launch = reply->launch;
    absl::Status status = FromWire(reply->status);
    return reply->has_pushback != 0 ? WithRetryPushback(std::move(status), reply->pushback_ms)
                                    : status;
  }

 private:
  RemoteDevice* const device_;
  const int socket_;
};

absl::StatusOr<std::unique_ptr<RemoteDevice>> RemoteDevice::Connect(int control, int staging,
                                                                    std::vector<int> lanes) {
  std::unique_ptr<RemoteDevice> device(new RemoteDevice(control, staging, std::move(lanes)));
  ASSIGN_OR_RETURN(const Hello hello, Receive<Hello>(control));
  RETURN_IF_ERROR(FromWire(hello.status));
  ASSIGN_OR_RETURN(device->properties_, FromWire(hello));
  absl::MutexLock lock(&device->mutex_);
  device->memory_.total_bytes = device->properties_.memory_bytes;
  return device;
}

RemoteDevice::~RemoteDevice() {
  close(control_);
  close(staging_);
  for (const int lane : lanes_) close(lane);
}

absl::StatusOr<std::unique_ptr<Stream>> RemoteDevice::CreateStream() {
  return absl::UnimplementedError("a worker's streams are its own");
}

absl::StatusOr<Buffer> RemoteDevice::AllocateStaging(size_t bytes) {
  void* memory = MAP_FAILED;
  if (ftruncate(staging_, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, staging_, 0);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the system refused ", bytes, " bytes of shared memory (staging_mib): ", strerror(errno)));
  // No owner: responses that are still being sent may outlive the device.
  Buffer buffer(
      memory, bytes, [](void*, void* data, size_t size) { munmap(data, size); }, nullptr);
  staging_memory_ = static_cast<char*>(memory);
  RETURN_IF_ERROR(Send(control_, StagingReady{bytes}));
  ASSIGN_OR_RETURN(const WireStatus pinned, Receive<WireStatus>(control_));
  RETURN_IF_ERROR(FromWire(pinned));
  return buffer;
}

MemoryUsage RemoteDevice::memory_usage() const {
  absl::MutexLock lock(&mutex_);
  return memory_;
}

absl::StatusOr<std::unique_ptr<Executor>> RemoteDevice::CreateExecutor() {
  if (lanes_used_ == lanes_.size())
    return absl::ResourceExhaustedError(
        absl::StrCat(properties_.name, " was started for ", lanes_.size(), " lanes"));
  return std::make_unique<RemoteExecutor>(this, lanes_[lanes_used_++]);
}

std::vector<int64_t> RemoteDevice::error_counts() const {
  absl::MutexLock lock(&mutex_);
  return errors_;
}

void RemoteDevice::Note(const RunReply& reply) {
  if (reply.healthy == 0) MarkLost();
  absl::MutexLock lock(&mutex_);
  memory_ = reply.memory;
  errors_.assign(reply.errors, reply.errors + kErrorCodesMax);
}

}  // namespace warpcall::worker
