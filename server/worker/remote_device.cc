#include "server/worker/remote_device.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/lru_cache.h"
#include "kernels/graph/graph_plan.h"
#include "proto/common/check.h"
#include "proto/common/human_figures.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/log/log.h"
#include "server/worker/graph_message.h"

namespace warpcall::worker {
namespace {

// CUDA's start takes about a second a GPU, and pinning another for each 10 GiB of staging.
constexpr absl::Duration kStartTimeout = absl::Seconds(120);

// Adds what `more` counts to `sum`, which may be shorter.
void AddCounts(const std::vector<int64_t>& more, std::vector<int64_t>* sum) {
  sum->resize(std::max(sum->size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) (*sum)[i] += more[i];
}

// UNAVAILABLE when the worker is gone, or what it sent is no such message.
template <typename T>
absl::StatusOr<T> Receive(const Link& link) {
  absl::StatusOr<T> message = link.control().ReceiveStruct<T>();
  if (message.ok()) return message;
  return absl::UnavailableError(
      absl::StrCat("the worker process is lost: ", message.status().message()));
}

}  // namespace

// Stands in the server for memory in a worker: the `data` of its Buffer.
struct RemoteResident {
  static const RemoteResident& Of(const ResidentMemory& memory) {
    return *reinterpret_cast<const RemoteResident*>(memory.data());
  }
  static void Free(void* /*owner*/, void* data, size_t /*bytes*/) {
    const std::unique_ptr<RemoteResident> freed(static_cast<RemoteResident*>(data));
    // The memory of a worker that ended is gone.
    if (const std::shared_ptr<Link> link = freed->worker.lock()) link->Free({freed->number});
  }

  std::weak_ptr<Link> worker;
  uint64_t number;
};

// Hands a job to its lane in the worker and waits for the answer.
class RemoteExecutor final : public Executor {
 public:
  RemoteExecutor(RemoteDevice* device, size_t lane) : device_(device), lane_(lane) {}

  absl::Status BindThread() override { return absl::OkStatus(); }

  absl::Status Run(const Job& job, absl::Span<const StagingRange> staging) override {
    const std::shared_ptr<Link> link = device_->link();
    if (link == nullptr)
      return Unavailable(device_->lost() ? "it was lost" : "its worker is being started again");
    for (const ResidentPlace& place : job.residents)
      if (place.content != nullptr)
        RETURN_IF_ERROR(place.content->Allocate(
            [&](size_t bytes) { return AllocateResident(bytes, link, job.watch); }));
    int graph = 0;
    if (job.problem.graph != nullptr) {
      ASSIGN_OR_RETURN(graph, SendGraph(job, link));
    }
    RETURN_IF_ERROR(ToWire(job, &request_));
    request_.graph = graph;
    WARPCALL_CHECK(staging.size() <= std::size(request_.offsets), staging.size());
    for (const StagingRange& range : staging)
      WARPCALL_DCHECK(range.bytes == 0 || device_->IsStaging(range), range.bytes);
    for (size_t i = 0; i < staging.size(); ++i)
      request_.offsets[i] = staging[i].bytes == 0
                                ? 0
                                : static_cast<uint64_t>(staging[i].data - device_->staging_memory_);
    RETURN_IF_ERROR(AddResidents(job, *link));
    return Call(*link, job.watch, job.trace);
  }

 private:
  absl::StatusOr<Buffer> AllocateResident(size_t bytes, const std::shared_ptr<Link>& link,
                                          const RunWatch* watch) {
    const uint64_t number = device_->residents_.fetch_add(1, std::memory_order_relaxed) + 1;
    ToWire(Allocation{number, bytes}, &request_);
    RequestTrace trace;
    RETURN_IF_ERROR(Call(*link, watch, &trace));
    return Buffer(new RemoteResident{link, number}, bytes, &RemoteResident::Free, nullptr);
  }

  // The number of the job's graph in the worker, which gets the graph unless it has it.
  absl::StatusOr<int> SendGraph(const Job& job, const std::shared_ptr<Link>& link) {
    if (graphs_of_.lock() != link) {
      graphs_of_ = link;
      graphs_.Clear();
    }
    if (const int* const known = graphs_.Find(job.problem)) return *known;
    std::string bytes;
    ASSIGN_OR_RETURN(bytes, GraphToBytes(job.problem));
    // The number of the graph that makes room.
    const std::optional<int> gone = graphs_.Insert(job.problem, -1);
    const int number = gone.value_or(static_cast<int>(graphs_.size()) - 1);
    absl::Status status;
    for (size_t at = 0; at < bytes.size() && status.ok(); at += kGraphPartBytes) {
      ToWire(number, bytes, at, &request_);
      RequestTrace trace;
      status = Call(*link, job.watch, &trace);
    }
    if (!status.ok()) {
      graphs_.Clear();
      return status;
    }
    graphs_.Insert(job.problem, number);
    return number;
  }

  // Adds the places of operands in tensors that stay.
  absl::Status AddResidents(const Job& job, const Link& link) {
    for (size_t i = 0; i < job.residents.size(); ++i) {
      if (!job.IsResident(i) || job.residents[i].content->bytes() == 0) continue;
      const RemoteResident& resident = RemoteResident::Of(*job.residents[i].content);
      if (resident.worker.lock().get() != &link)
        return Unavailable("a tensor was lost with the worker that had it");
      request_.residents[i / 64] |= uint64_t{1} << i % 64;
      request_.numbers[i] = resident.number;
      request_.offsets[i] = job.residents[i].offset;
    }
    return absl::OkStatus();
  }

  // Sends the request and reads the answer.
  absl::Status Call(Link& link, const RunWatch* watch, RequestTrace* trace) {
    absl::Status received = link.Run(lane_, request_, watch, &reply_);
    if (received.ok()) received = CheckReply(reply_);
    if (!received.ok()) {
      device_->HandleBroken(&link);
      return Unavailable(received.message());
    }
    device_->Record(reply_);
    trace->h2d_ns = reply_.h2d_ns;
    trace->kernel_ns = reply_.kernel_ns;
    trace->d2h_ns = reply_.d2h_ns;
    trace->device_ns = reply_.device_ns;
    trace->launch = reply_.launch;
    if (trace->graph != nullptr) FromWire(reply_, trace->graph.get());
    absl::Status status = RefuseFor(reply_.reject_reason, FromWire(reply_.status));
    if (reply_.failed_step >= 0) status = AtStep(reply_.failed_step, std::move(status));
    if (reply_.healthy == 0) {
      device_->HandleBroken(&link);
      status = RefuseFor(RejectReason::kDeviceLost, std::move(status));
    }
    return reply_.has_pushback != 0 ? WithRetryPushback(std::move(status), reply_.pushback_ms)
                                    : status;
  }

  // Reported here, since the next worker may serve before any caller checks the device's health.
  absl::Status Unavailable(absl::string_view why) const {
    return RefuseFor(RejectReason::kDeviceLost,
                     absl::UnavailableError(absl::StrCat(device_->properties().name, ": ", why)));
  }

  RemoteDevice* const device_;
  const size_t lane_;
  // Numbers of the graphs that the lane's worker knows.
  std::weak_ptr<Link> graphs_of_;
  LruCache<Problem, int> graphs_{kGraphsMax};
  RunRequest request_ = {};  // the last
  RunReply reply_ = {};
};

absl::StatusOr<std::unique_ptr<RemoteDevice>> RemoteDevice::Create(RemoteOptions options) {
  std::unique_ptr<RemoteDevice> device(new RemoteDevice(std::move(options)));
  device->staging_ = memfd_create("warpcall-staging", MFD_CLOEXEC);
  device->stop_ = eventfd(0, EFD_CLOEXEC);
  if (device->staging_ < 0 || device->stop_ < 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptors for a worker process: ", strerror(errno)));
  Hello hello;
  std::shared_ptr<Link> link;
  ASSIGN_OR_RETURN(link, device->StartWorker(&hello));
  ASSIGN_OR_RETURN(device->properties_, FromWire(hello));
  device->resident_bytes_max_ = hello.resident_bytes_max;
  device->Serve(std::move(link));
  return device;
}

RemoteDevice::~RemoteDevice() {
  if (stop_ >= 0) eventfd_write(stop_, 1);
  if (supervisor_.joinable()) supervisor_.join();
  if (stop_ >= 0) close(stop_);
  if (staging_ >= 0) close(staging_);
}

absl::StatusOr<std::unique_ptr<Stream>> RemoteDevice::CreateStream() {
  return absl::UnimplementedError("a worker's streams are its own");
}

bool RemoteDevice::IsStaging(const StagingRange& range) const {
  return range.data >= staging_memory_ && range.bytes <= staging_bytes_ &&
         static_cast<size_t>(range.data - staging_memory_) <= staging_bytes_ - range.bytes;
}

absl::StatusOr<Buffer> RemoteDevice::AllocateStaging(size_t bytes) {
  WARPCALL_CHECK(staging_memory_ == nullptr && !supervisor_.joinable());
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
  staging_bytes_ = bytes;
  std::shared_ptr<Link> first = link();
  RETURN_IF_ERROR(ShareStaging(*first));
  supervisor_ =
      std::thread([this, first = std::move(first)]() mutable { Supervise(std::move(first)); });
  return buffer;
}

absl::Status RemoteDevice::AwaitWorker(const Link& link, absl::Duration timeout) {
  pollfd sockets[] = {{stop_, POLLIN, 0}, {link.control().socket(), POLLIN, 0}};
  const int timeout_ms = timeout == absl::InfiniteDuration()
                             ? -1
                             : static_cast<int>(absl::ToInt64Milliseconds(timeout));
  int ready;
  do {
    ready = poll(sockets, 2, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (sockets[0].revents != 0) return absl::CancelledError("the device is being closed");
  if (ready == 0)
    return absl::DeadlineExceededError(absl::StrCat("the worker process said nothing for ",
                                                    HumanTime(absl::ToDoubleNanoseconds(timeout))));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Link>> RemoteDevice::StartWorker(Hello* hello) {
  absl::StatusOr<LinkEnds> ends = options_.start(staging_);
  if (!ends.ok()) return std::move(ends).status();
  std::shared_ptr<Link> link;
  ASSIGN_OR_RETURN(link, Link::Open(*std::move(ends), options_.spin_places));
  RETURN_IF_ERROR(AwaitWorker(*link, kStartTimeout));
  ASSIGN_OR_RETURN(*hello, Receive<Hello>(*link));
  RETURN_IF_ERROR(FromWire(hello->status));
  return link;
}

absl::Status RemoteDevice::ShareStaging(const Link& link) {
  RETURN_IF_ERROR(link.control().SendStruct(StagingReady{staging_bytes_, options_.spin_places}));
  RETURN_IF_ERROR(AwaitWorker(link, kStartTimeout));
  ASSIGN_OR_RETURN(const WireStatus pinned, Receive<WireStatus>(link));
  return FromWire(pinned);
}

std::shared_ptr<Link> RemoteDevice::link() const {
  absl::MutexLock lock(&mutex_);
  return link_;
}

void RemoteDevice::Serve(std::shared_ptr<Link> link) {
  absl::MutexLock lock(&mutex_);
  AddCounts(errors_, &past_errors_);
  errors_.clear();
  past_compile_counts_ += compile_counts_;
  past_compile_counts_[compiled::Counts::kMemoryBytes] = 0;
  compile_counts_ = {};
  memory_ = MemoryUsage();
  memory_.total_bytes = properties_.memory_bytes;
  link_ = std::move(link);
  serving_.store(true, std::memory_order_release);
}

void RemoteDevice::HandleBroken(Link* link) {
  {
    absl::MutexLock lock(&mutex_);
    if (link_.get() == link) {
      link_.reset();
      losses_.fetch_add(1, std::memory_order_release);
      serving_.store(false, std::memory_order_release);
    }
  }
  link->Break();
}

void RemoteDevice::Record(const RunReply& reply) {
  absl::MutexLock lock(&mutex_);
  memory_ = reply.memory;
  // A lane may have been overtaken by another on its way here: what counts up never goes back.
  errors_.resize(kErrorCodesMax);
  for (size_t i = 0; i < errors_.size(); ++i) errors_[i] = std::max(errors_[i], reply.errors[i]);
  compile_counts_.Advance(reply.compile_counts);
}

void RemoteDevice::Supervise(std::shared_ptr<Link> link) {
  while (link != nullptr && AwaitWorker(*link, absl::InfiniteDuration()).ok()) {
    HandleBroken(link.get());
    Log(LogLevel::kError, "a worker process ended", {{"device", properties_.name}});
    link.reset();
    ReportLoss();
    link = Restart();
  }
}

std::shared_ptr<Link> RemoteDevice::Restart() {
  for (;;) {
    const absl::optional<int64_t> pause_ns = rule_.PauseAfterFailure(options_.clock());
    if (!pause_ns.has_value()) {
      MarkLost();
      return nullptr;
    }
    pollfd stop = {stop_, POLLIN, 0};
    if (poll(&stop, 1, static_cast<int>(*pause_ns / 1'000'000)) > 0) return nullptr;
    absl::StatusOr<std::shared_ptr<Link>> another = StartAnother();
    if (another.ok()) {
      restarts_.fetch_add(1, std::memory_order_relaxed);
      Serve(*another);
      Log(LogLevel::kInfo, "a worker process was started again", {{"device", properties_.name}});
      return *std::move(another);
    }
    if (absl::IsCancelled(another.status())) return nullptr;
    Log(LogLevel::kError, "a worker process did not start again",
        {{"device", properties_.name}, {"error", another.status().message()}});
  }
}

absl::StatusOr<std::shared_ptr<Link>> RemoteDevice::StartAnother() {
  Hello hello;
  std::shared_ptr<Link> link;
  ASSIGN_OR_RETURN(link, StartWorker(&hello));
  ASSIGN_OR_RETURN(const DeviceProperties found, FromWire(hello));
  if (found.name != properties_.name || found.description != properties_.description ||
      found.pci_bus_id != properties_.pci_bus_id)
    return absl::FailedPreconditionError(
        absl::StrCat("the restarted worker has a different device: ", found.name, ", ",
                     found.description, " at ", found.pci_bus_id));
  RETURN_IF_ERROR(ShareStaging(*link));
  return link;
}

void RemoteDevice::MarkLost() {
  Log(LogLevel::kError, "a device is given up: its worker failed too often",
      {{"device", properties_.name},
       {"failures", static_cast<int64_t>(RestartRule::kFailuresMax)},
       {"within_seconds", RestartRule::kWindowNs / 1'000'000'000}});
  lost_.store(true, std::memory_order_release);
  ReportLoss();
}

void RemoteDevice::ReportLoss() {
  absl::MutexLock lock(&on_lost_mutex_);
  if (on_lost_ != nullptr) on_lost_();
}

void RemoteDevice::OnLost(std::function<void()> on_lost) {
  absl::MutexLock lock(&on_lost_mutex_);
  on_lost_ = std::move(on_lost);
}

MemoryUsage RemoteDevice::memory_usage() const {
  absl::MutexLock lock(&mutex_);
  return memory_;
}

absl::StatusOr<std::unique_ptr<Executor>> RemoteDevice::CreateExecutor() {
  const auto lanes = static_cast<size_t>(options_.lanes);
  if (lanes_used_ == lanes)
    return absl::ResourceExhaustedError(
        absl::StrCat(properties_.name, " was started for ", lanes, " lanes"));
  return std::make_unique<RemoteExecutor>(this, lanes_used_++);
}

std::vector<int64_t> RemoteDevice::error_counts() const {
  absl::MutexLock lock(&mutex_);
  std::vector<int64_t> counts = past_errors_;
  AddCounts(errors_, &counts);
  return counts;
}

compiled::Counts RemoteDevice::compile_counts() const {
  absl::MutexLock lock(&mutex_);
  compiled::Counts counts = past_compile_counts_;
  counts += compile_counts_;
  return counts;
}

}  // namespace warpcall::worker
