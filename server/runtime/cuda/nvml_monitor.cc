#include "server/runtime/cuda/nvml_monitor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "proto/common/steady_wait.h"
#include "server/log/log.h"
#include "server/runtime/cuda/nvml_gpu.h"

namespace warpcall::nvml {
namespace {

// Whatever a driver does, a poll ends.
constexpr int kEventsPerPollMax = 1024;

// Xid errors of several GPUs.
class XidEvents {
 public:
  explicit XidEvents(const Api& api) : api_(api) {
    const bool has_functions = api_.EventSetCreate != nullptr && api_.EventSetFree != nullptr &&
                               api_.EventSetWait != nullptr && api_.DeviceRegisterEvents != nullptr;
    const Return result = has_functions ? api_.EventSetCreate(&set_) : kFunctionNotFound;
    if (result == kSuccess) return;
    set_ = nullptr;
    Log(LogLevel::kInfo, "NVML does not tell",
        {{"what", "Xid errors"}, {"error", Describe(api_, result)}});
  }
  ~XidEvents() {
    if (set_ != nullptr) api_.EventSetFree(set_);
  }
  XidEvents(const XidEvents&) = delete;
  XidEvents& operator=(const XidEvents&) = delete;

  void Add(Gpu* gpu) {
    if (set_ != nullptr) gpu->Register(set_);
  }

  // Counts what has come since the last call, in the `readings` of `gpus`; does not wait.
  void Take(const std::vector<std::unique_ptr<Gpu>>& gpus, std::vector<GpuReading>* readings) {
    for (int i = 0; set_ != nullptr && i < kEventsPerPollMax; ++i) {
      EventData event = {};
      const Return result = api_.EventSetWait(set_, &event, 0);
      if (result != kSuccess) {
        LogOnce(result);
        return;
      }
      for (size_t gpu = 0; gpu < gpus.size(); ++gpu)
        if (gpus[gpu]->device() == event.device && event.type == kEventXidCriticalError)
          ++(*readings)[gpu].xid_errors[static_cast<int64_t>(event.data)];
    }
  }

 private:
  void LogOnce(Return result) {
    if (result == kTimeout || logged_) return;
    logged_ = true;
    Log(LogLevel::kInfo, "NVML does not tell",
        {{"what", "Xid errors"}, {"error", Describe(api_, result)}});
  }

  const Api& api_;
  EventSet set_ = nullptr;
  bool logged_ = false;
};

// Initialises NVML, and shuts it down at the end.
class Session {
 public:
  Session(const Api& api, const std::vector<WatchedGpu>& watched) : events_(api) {
    for (const WatchedGpu& gpu : watched) {
      gpus_.push_back(std::make_unique<Gpu>(api, gpu.name, gpu.pci_bus_id));
      events_.Add(gpus_.back().get());
    }
  }

  // Keeps the counts of `readings` and replaces the rest.
  void Poll(std::vector<GpuReading>* readings) {
    for (size_t i = 0; i < gpus_.size(); ++i) {
      GpuReading reading = gpus_[i]->Read();
      reading.xid_errors.swap((*readings)[i].xid_errors);
      (*readings)[i] = std::move(reading);
    }
    events_.Take(gpus_, readings);
  }

 private:
  XidEvents events_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

}  // namespace

struct Monitor::Shared {
  Shared(const Api& nvml, const std::vector<WatchedGpu>& gpus, absl::Duration poll_period)
      : api(nvml), watched(gpus), period(poll_period) {}

  const Api api;
  const std::vector<WatchedGpu> watched;
  const absl::Duration period;

  absl::Mutex mutex;  // held for no call of NVML
  std::vector<GpuReading> readings ABSL_GUARDED_BY(mutex);
  SteadyCondVar changed;  // one of these two
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
};

Monitor::Monitor(const Api& api, const std::vector<WatchedGpu>& gpus, const MonitorOptions& options)
    : options_(options), shared_(std::make_shared<Shared>(api, gpus, options.period)) {
  {
    absl::MutexLock lock(&shared_->mutex);
    for (const WatchedGpu& gpu : gpus) shared_->readings.emplace_back().device = gpu.name;
  }
  thread_ = std::thread([shared = shared_] {
    Watch(shared);
    absl::MutexLock lock(&shared->mutex);
    shared->stopped = true;
    shared->changed.SignalAll();
  });
}

Monitor::~Monitor() {
  bool stopped;
  {
    absl::MutexLock lock(&shared_->mutex);
    shared_->stop = true;
    shared_->changed.SignalAll();
    const SteadyTime deadline = SteadyAfter(options_.patience);
    while (!shared_->stopped && !shared_->changed.WaitUntil(&shared_->mutex, deadline)) {
    }
    stopped = shared_->stopped;
  }
  if (stopped) {
    thread_.join();
    return;
  }
  Log(LogLevel::kWarning, "a call of NVML hangs; its thread is left behind");
  thread_.detach();
}

std::vector<GpuReading> Monitor::Readings() const {
  absl::MutexLock lock(&shared_->mutex);
  return shared_->readings;
}

void Monitor::Watch(const std::shared_ptr<Shared>& shared) {
  const Return result = shared->api.Init();
  if (result != kSuccess) {
    Log(LogLevel::kInfo, "NVML does not start: nothing is known of power, temperature and use",
        {{"error", Describe(shared->api, result)}});
    return;
  }
  {
    Session session(shared->api, shared->watched);
    const auto period = absl::ToChronoNanoseconds(shared->period);
    SteadyTime next = std::chrono::steady_clock::now();
    for (bool stop = false; !stop; next += period) {
      std::vector<GpuReading> readings;
      {
        absl::MutexLock lock(&shared->mutex);
        readings = shared->readings;
      }
      session.Poll(&readings);
      absl::MutexLock lock(&shared->mutex);
      shared->readings = std::move(readings);
      // A slow call is not made up for.
      next = std::max(next, std::chrono::steady_clock::now() - period);
      while (!shared->stop && !shared->changed.WaitUntil(&shared->mutex, next + period)) {
      }
      stop = shared->stop;
    }
  }
  shared->api.Shutdown();
}

}  // namespace warpcall::nvml
