#include "server/worker/worker.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/engine/execution.h"
#include "server/engine/refusal.h"
#include "server/worker/link.h"
#include "server/worker/protocol.h"

namespace warpcall::worker {
namespace {

// State that the lanes of one worker share; outlives them.
struct Shared {
  const Served& served;
  const process::Channel& control;
  absl::Span<char> staging;
  SpinPlaces places;
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
      const RunReply reply = Answer(request_);
      if (!mail_->replies.Put(reply, socket_).ok()) return;
      // A lost device serves nothing more: ends ServeDevice, and with it the process.
      if (reply.healthy == 0) shared_->control.Shutdown();
    }
  }

 private:
  RunReply Answer(const RunRequest& request) {
    RequestTrace trace;
    RunReply reply = {};
    const absl::Status status = Run(request, &trace);
    const auto pushback_ms = RetryPushbackMs(status);
    reply.status = ToWire(status);
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
    return reply;
  }

  absl::Status Run(const RunRequest& request, RequestTrace* trace) {
    Job job;
    ASSIGN_OR_RETURN(job.row, RowOf(request, *served_.registry));
    job.op = served_.registry->kernels()[static_cast<size_t>(job.row->kernel)].op;
    job.trace = trace;
    ASSIGN_OR_RETURN(job.problem, ProblemOf(request, *job.op));
    ASSIGN_OR_RETURN(const auto ranges, RangesOf(request, job.problem, shared_->staging));
    for (size_t i = 0; i < ranges.size(); ++i)
      (i < job.problem.inputs.size() ? job.input_bytes : job.output_bytes) +=
          static_cast<int64_t>(ranges[i].bytes);
    job.inputs.resize(job.problem.inputs.size());
    return execution_.Run(job, ranges);
  }

  const int socket_;
  LaneMail* const mail_;
  Shared* const shared_;
  const Served& served_;
  Execution execution_;
  RunRequest request_ = {};  // the last
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
  RETURN_IF_ERROR(ends.control->SendStruct(ToWire(served.device->properties())));
  ASSIGN_OR_RETURN(const StagingReady ready, ends.control->ReceiveStruct<StagingReady>());
  ASSIGN_OR_RETURN(const absl::Span<char> staging, MapStaging(ends, served, ready));
  MappedMail mail;
  ASSIGN_OR_RETURN(mail, MappedMail::Map(ends.mail, ends.lanes.size()));
  Shared shared{served, *ends.control, staging, SpinPlaces(ready.spin_places)};
  std::vector<std::unique_ptr<LaneServer>> lanes;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ends.lanes.size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, served.device->CreateStream());
    lanes.push_back(
        std::make_unique<LaneServer>(ends.lanes[i], &mail.lane(i), &shared, std::move(stream)));
  }
  for (const std::unique_ptr<LaneServer>& lane : lanes)
    threads.emplace_back([&lane] { lane->Serve(); });
  ends.control->ReceiveStruct<StagingReady>()
      .status()
      .IgnoreError();  // returns when the other end closes
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
