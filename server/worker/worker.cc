#include "server/worker/worker.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/graph/graph_plan.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/engine/execution.h"
#include "server/engine/refusal.h"
#include "server/worker/link.h"
#include "server/worker/protocol.h"

namespace warpcall::worker {
namespace {

// The tensors that stay in this worker, by the numbers that the server gave them. Thread-safe.
class ResidentTable {
 public:
  explicit ResidentTable(Device* device) : device_(device) {}

  absl::Status Allocate(const Allocation& wanted) {
    const DeviceProperties& properties = device_->properties();
    {
      absl::MutexLock lock(&mutex_);
      if (wanted.bytes > static_cast<uint64_t>(properties.memory_bytes) - bytes_)
        return RefuseForMemory(absl::ResourceExhaustedError(absl::StrCat(
            "a tensor of ", wanted.bytes, " bytes does not fit beside ", bytes_, " of others; ",
            properties.name, " has ", properties.memory_bytes, " bytes of memory")));
      bytes_ += wanted.bytes;
    }
    auto memory = std::make_shared<ResidentMemory>(wanted.bytes);
    absl::Status status =
        memory->Allocate([this](size_t bytes) { return device_->AllocateResident(bytes); });
    absl::MutexLock lock(&mutex_);
    if (status.ok() && !by_number_.emplace(wanted.number, std::move(memory)).second)
      status = absl::InternalError(absl::StrCat("tensor ", wanted.number, " is there already"));
    if (!status.ok()) bytes_ -= wanted.bytes;
    return RefuseForMemory(std::move(status));
  }

  void Free(uint64_t number) {
    std::shared_ptr<ResidentMemory> freed;  // after the lock: the device may take its time
    absl::MutexLock lock(&mutex_);
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) return;
    freed = std::move(found->second);
    by_number_.erase(found);
    bytes_ -= freed->bytes();
  }

  // Null: there is none.
  std::shared_ptr<ResidentMemory> Find(uint64_t number) const {
    absl::MutexLock lock(&mutex_);
    const auto found = by_number_.find(number);
    return found == by_number_.end() ? nullptr : found->second;
  }

 private:
  Device* const device_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<ResidentMemory>> by_number_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// State that the lanes of one worker share; outlives them.
struct Shared {
  const Served& served;
  const process::Channel& control;
  absl::Span<char> staging;
  SpinPlaces places;
  ResidentTable residents;
};

// One lane: answers what comes into its mailbox until its socket is closed.
class LaneServer {
 public:
  LaneServer(int socket, LaneMail* mail, Shared* shared, std::unique_ptr<Stream> stream)
      : socket_(socket),
        mail_(mail),
        shared_(shared),
        served_(shared->served),
        execution_(served_.device, std::move(stream), MonotonicNs) {
    WARPCALL_DCHECK(socket >= 0 && mail != nullptr, socket);
  }

  void Serve() {
    execution_.BindThread().IgnoreError();
    for (uint32_t nth = 1;; ++nth) {
      if (!mail_->requests.Take(nth, {socket_, &shared_->places}, &request_).ok()) return;
      Answer(request_, &reply_);
      if (!mail_->replies.Put(reply_, socket_).ok()) return;
      // A lost device serves nothing more: ends ServeDevice, and with it the process.
      if (reply_.healthy == 0) shared_->control.Shutdown();
    }
  }

 private:
  void Answer(const RunRequest& request, RunReply* to) {
    RunReply& reply = *to;
    static_cast<RunFacts&>(reply) = {};  // `steps` has as many as the facts say
    RequestTrace trace;
    const absl::Status status = Run(request, &trace);
    const auto pushback_ms = RetryPushbackMs(status);
    reply.status = ToWire(status);
    reply.failed_step = StepOf(status).value_or(-1);
    if (trace.graph != nullptr) ToWire(*trace.graph, &reply);
    reply.has_pushback = pushback_ms.has_value();
    reply.pushback_ms = pushback_ms.value_or(0);
    reply.healthy = served_.device->healthy();
    reply.reject_reason = RejectReasonOf(status);
    reply.h2d_ns = trace.h2d_ns;
    reply.kernel_ns = trace.kernel_ns;
    reply.d2h_ns = trace.d2h_ns;
    reply.device_ns = trace.device_ns;
    reply.launch = trace.launch;
    reply.memory = served_.device->memory_usage();
    reply.compile_counts = served_.device->compile_counts();
    const std::vector<DeviceErrorCount> errors = served_.errors();
    for (size_t i = 0; i < errors.size() && i < kErrorCodesMax; ++i)
      reply.errors[i] = errors[i].count;
  }

  absl::Status Run(const RunRequest& request, RequestTrace* trace) {
    if (request.row == kAllocateRow) {
      ASSIGN_OR_RETURN(const Allocation wanted, AllocationOf(request));
      return shared_->residents.Allocate(wanted);
    }
    if (request.row == kGraphRow) return graphs_.Add(request, *served_.registry);
    Job job;
    ASSIGN_OR_RETURN(job.row, RowOf(request, *served_.registry));
    const Kernel& kernel = served_.registry->kernels()[static_cast<size_t>(job.row->kernel)];
    job.op = kernel.op;
    job.trace = trace;
    if (kernel.is_named()) {
      ASSIGN_OR_RETURN(job.problem, ProblemOf(request, *job.op));
    } else {
      ASSIGN_OR_RETURN(job.problem, graphs_.Find(request));
      trace->graph = std::make_shared<GraphRun>(GraphRun{job.problem.graph});
    }
    PlacedOperands operands;
    ASSIGN_OR_RETURN(
        operands, OperandsOf(request, job.problem, shared_->staging,
                             [this](uint64_t number) { return shared_->residents.Find(number); }));
    job.residents = std::move(operands.residents);
    return execution_.Run(job, operands.staging);
  }

  const int socket_;
  LaneMail* const mail_;
  Shared* const shared_;
  const Served& served_;
  Execution execution_;
  GraphShelf graphs_;
  RunRequest request_ = {};  // the last
  RunReply reply_ = {};
};

absl::StatusOr<absl::Span<char>> MapStaging(const Ends& ends, const Served& served,
                                            const StagingReady& ready) {
  struct stat file;
  const bool exists = fstat(ends.staging, &file) == 0 &&
                      static_cast<uint64_t>(std::max<off_t>(file.st_size, 0)) >= ready.bytes;
  void* const memory =
      exists ? mmap(nullptr, ready.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ends.staging, 0)
             : MAP_FAILED;
  absl::Status status = memory == MAP_FAILED
                            ? absl::ResourceExhaustedError("a worker cannot map staging memory")
                            : served.pin(memory, ready.bytes);
  RETURN_IF_ERROR(ends.control->SendStruct(ToWire(status)));
  RETURN_IF_ERROR(status);
  return absl::MakeSpan(static_cast<char*>(memory), ready.bytes);
}

}  // namespace

absl::Status ServeDevice(const Ends& ends, const Served& served) {
  Hello hello = ToWire(served.device->properties());
  hello.resident_bytes_max = served.device->resident_bytes_max();
  RETURN_IF_ERROR(ends.control->SendStruct(hello));
  ASSIGN_OR_RETURN(const StagingReady ready, ends.control->ReceiveStruct<StagingReady>());
  ASSIGN_OR_RETURN(const absl::Span<char> staging, MapStaging(ends, served, ready));
  MappedMail mail;
  ASSIGN_OR_RETURN(mail, MappedMail::Map(ends.mail, ends.lanes.size()));
  Shared shared{served, *ends.control, staging, SpinPlaces(ready.spin_places),
                ResidentTable(served.device)};
  std::vector<std::unique_ptr<LaneServer>> lanes;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ends.lanes.size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, served.device->CreateStream());
    lanes.push_back(
        std::make_unique<LaneServer>(ends.lanes[i], &mail.lane(i), &shared, std::move(stream)));
  }
  for (const std::unique_ptr<LaneServer>& lane : lanes)
    threads.emplace_back([&lane] { lane->Serve(); });
  for (;;) {
    const absl::StatusOr<FreeResident> resident = ends.control->ReceiveStruct<FreeResident>();
    if (!resident.ok()) break;  // the other end is closed
    shared.residents.Free(resident->number);
  }
  for (const int socket : ends.lanes) shutdown(socket, SHUT_RDWR);
  for (std::thread& thread : threads) thread.join();
  return absl::OkStatus();
}

void ReportFailure(const Ends& ends, const absl::Status& status) {
  Hello hello = {};
  hello.status = ToWire(status);
  ends.control->SendStruct(hello).IgnoreError();
}

}  // namespace warpcall::worker
