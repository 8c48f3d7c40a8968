// The server's side of a worker: a device that another process owns, so that its fatal errors stay
// there.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/executor.h"
#include "server/engine/metrics_sink.h"
#include "server/runtime/device.h"
#include "server/worker/protocol.h"

namespace warpcall::worker {

class RemoteDevice final : public Device {
 public:
  // Takes over the server's ends of the sockets and the file for staging memory. Waits for the
  // worker to say what its device is.
  static absl::StatusOr<std::unique_ptr<RemoteDevice>> Connect(int control, int staging,
                                                               std::vector<int> lanes);
  // The worker ends when the sockets are closed.
  ~RemoteDevice() override;

  const DeviceProperties& properties() const override { return properties_; }
  bool healthy() const override { return !lost_.load(std::memory_order_acquire); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;
  // Shared with the worker, which pins it. REQUIRES: called once.
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override;
  // Both are the worker's to decide.
  bool KernelsUseStaging(size_t, bool) const override { return false; }
  size_t round_bytes() const override { return 0; }
  MemoryUsage memory_usage() const override;

  // For the next of the lanes that it was connected with; RESOURCE_EXHAUSTED beyond.
  absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor();
  // How often the worker saw each error, in the order of its DeviceErrorCounts.
  std::vector<int64_t> error_counts() const;

 private:
  friend class RemoteExecutor;

  RemoteDevice(int control, int staging, std::vector<int> lanes)
      : control_(control), staging_(staging), lanes_(std::move(lanes)) {}
  void MarkLost() { lost_.store(true, std::memory_order_release); }
  void Note(const RunReply& reply);

  const int control_;
  const int staging_;
  const std::vector<int> lanes_;
  size_t lanes_used_ = 0;
  DeviceProperties properties_;
  char* staging_memory_ = nullptr;
  std::atomic<bool> lost_{false};
  mutable absl::Mutex mutex_;
  MemoryUsage memory_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> errors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::worker
