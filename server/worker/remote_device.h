// The server's side of a worker: a device that another process owns, so that its fatal errors stay
// there. A worker that ends is started again; staging memory stays where it is.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/engine/executor.h"
#include "server/engine/metrics_sink.h"
#include "server/runtime/device.h"
#include "server/worker/link.h"
#include "server/worker/protocol.h"
#include "server/worker/restart_rule.h"

namespace warpcall::worker {

struct RemoteOptions {
  // Starts a worker that maps the file `staging`, which stays the caller's. Called again, on
  // another thread, when that worker has ended.
  std::function<absl::StatusOr<LinkEnds>(int staging)> start;
  int lanes = 1;
  int spin_places = 0;  // in this process and in the worker each: see SpinPlaces
  Clock clock = MonotonicNs;
};

class RemoteDevice final : public Device {
 public:
  // Starts the first worker and waits for it to say what its device is.
  static absl::StatusOr<std::unique_ptr<RemoteDevice>> Create(RemoteOptions options);
  // Ends the worker.
  ~RemoteDevice() override;

  const DeviceProperties& properties() const override { return properties_; }
  // False while there is no worker.
  bool healthy() const override { return serving_.load(std::memory_order_acquire); }
  bool lost() const override { return lost_.load(std::memory_order_acquire); }
  int64_t restarts() const override { return restarts_.load(std::memory_order_relaxed); }
  int64_t memory_losses() const override { return losses_.load(std::memory_order_acquire); }
  void OnLost(std::function<void()> on_lost) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;
  // Shared with the worker, which pins it. From here on a worker that ends is started again.
  // REQUIRES: called once.
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override;
  // Executors allocate them, in the worker.
  int64_t resident_bytes_max() const override { return resident_bytes_max_; }
  // The worker decides both.
  bool KernelsUseStaging(size_t, bool) const override { return false; }
  size_t round_bytes() const override { return 0; }
  MemoryUsage memory_usage() const override;
  // Sums over all its workers; the current worker's alone for bytes in memory.
  compiled::Counts compile_counts() const override;

  // The executor of the next lane; RESOURCE_EXHAUSTED when every lane has one.
  absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor();
  // Returns the count of each error that its workers saw, in the order of their DeviceErrorCounts.
  std::vector<int64_t> error_counts() const;

 private:
  friend class RemoteExecutor;

  explicit RemoteDevice(RemoteOptions options) : options_(std::move(options)) {}

  // A worker that has said hello.
  absl::StatusOr<std::shared_ptr<Link>> StartWorker(Hello* hello);
  // Makes the worker map and pin staging.
  absl::Status ShareStaging(const Link& link);
  // Waits until the worker sends a message, the worker ends, `timeout` passes, or this object is
  // destroyed. OK in the first two cases.
  absl::Status AwaitWorker(const Link& link, absl::Duration timeout);

  // Returns true if the range lies in the staging that the worker maps.
  bool IsStaging(const StagingRange& range) const;
  // Null while there is no worker.
  std::shared_ptr<Link> link() const;
  // The device is unhealthy until the next worker serves it.
  void HandleBroken(Link* link);
  void Record(const RunReply& reply);

  void Supervise(std::shared_ptr<Link> link);
  // Null when the device is lost or this object is being destroyed.
  std::shared_ptr<Link> Restart();
  absl::StatusOr<std::shared_ptr<Link>> StartAnother();
  void Serve(std::shared_ptr<Link> link);
  void MarkLost();
  void ReportLoss();

  const RemoteOptions options_;
  int staging_ = -1;
  int stop_ = -1;  // readable once this object is being destroyed
  DeviceProperties properties_;
  int64_t resident_bytes_max_ = 0;
  std::atomic<uint64_t> residents_{0};  // the last tensor's number; restarted workers reuse none
  char* staging_memory_ = nullptr;
  size_t staging_bytes_ = 0;
  size_t lanes_used_ = 0;
  RestartRule rule_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> lost_{false};
  std::atomic<int64_t> restarts_{0};
  std::atomic<int64_t> losses_{0};  // workers that ended
  mutable absl::Mutex mutex_;
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mutex_);
  MemoryUsage memory_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> errors_ ABSL_GUARDED_BY(mutex_);       // this worker's
  std::vector<int64_t> past_errors_ ABSL_GUARDED_BY(mutex_);  // earlier workers'
  compiled::Counts compile_counts_ ABSL_GUARDED_BY(mutex_);
  compiled::Counts past_compile_counts_ ABSL_GUARDED_BY(mutex_);
  absl::Mutex on_lost_mutex_;  // held while `on_lost_` runs, so that it ends before its target
  std::function<void()> on_lost_ ABSL_GUARDED_BY(on_lost_mutex_);
  std::thread supervisor_;
};

}  // namespace warpcall::worker
