#include "server/worker/worker.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <thread>

#include "kernels/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/engine/execution.h"
#include "server/engine/retry_pushback.h"
#include "server/worker/protocol.h"

namespace warpcall::worker {
namespace {

// One lane: answers requests on its socket until that is closed.
class LaneServer {
 public:
  LaneServer(int socket, const Ends& ends, const Served& served, std::unique_ptr<Stream> stream)
      : socket_(socket),
        control_(ends.control),
        served_(served),
        execution_(served.device, std::move(stream), MonotonicNs) {}

  void Serve(char* staging) {
    staging_ = staging;
    execution_.BindThread().IgnoreError();
    for (;;) {
      const absl::StatusOr<RunRequest> request = Receive<RunRequest>(socket_);
      if (!request.ok()) return;
      const RunReply reply = Answer(*request);
      if (!Send(socket_, reply).ok()) return;
      // Nothing more to serve: ends ServeDevice, and with it the process.
      if (!reply.healthy) shutdown(control_, SHUT_RDWR);
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
    reply.reject_reason = trace.reject_reason;
    reply.h2d_ns = trace.h2d_ns;
    reply.kernel_ns = trace.kernel_ns;
    reply.d2h_ns = trace.d2h_ns;
    reply.device_ns = trace.device_ns;
    reply.launch = trace.launch;
    reply.memory = served_.device->memory_usage();
    const std::vector<DeviceErrorCount> errors = served_.errors();
    for (size_t i = 0; i < errors.size() && i < kErrorCodesMax; ++i)
      reply.errors[i] = errors[i].count;
    return reply;
  }

  absl::Status Run(const RunRequest& request, RequestTrace* trace) {
    const Row& row = served_.registry->rows()[static_cast<size_t>(request.row)];
    Job job;
    job.op = served_.registry->kernels()[static_cast<size_t>(row.kernel)].op;
    job.row = &row;
    job.trace = trace;
    ASSIGN_OR_RETURN(job.problem, ProblemOf(request, *job.op));
    absl::InlinedVector<StagingRange, 3> ranges;
    const auto add = [&](const TensorSpec& spec) {
      ranges.push_back({staging_ + request.offsets[ranges.size()], spec.bytes()});
      return static_cast<int64_t>(spec.bytes());
    };
    for (const TensorSpec& spec : job.problem.inputs) job.input_bytes += add(spec);
    for (const TensorSpec& spec : job.problem.outputs) job.output_bytes += add(spec);
    job.inputs.resize(job.problem.inputs.size());
    return execution_.Run(job, ranges);
  }

  const int socket_;
  const int control_;
  char* staging_ = nullptr;
  const Served& served_;
  Execution execution_;
};

absl::StatusOr<char*> MapStaging(const Ends& ends, const Served& served) {
  ASSIGN_OR_RETURN(const StagingReady ready, Receive<StagingReady>(ends.control));
  void* memory = mmap(nullptr, ready.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ends.staging, 0);
  absl::Status status = memory == MAP_FAILED
                            ? absl::ResourceExhaustedError("a worker cannot map staging memory")
                            : served.pin(memory, ready.bytes);
  RETURN_IF_ERROR(Send(ends.control, ToWire(status)));
  RETURN_IF_ERROR(status);
  return static_cast<char*>(memory);
}

}  // namespace

absl::Status ServeDevice(const Ends& ends, const Served& served) {
  RETURN_IF_ERROR(Send(ends.control, ToWire(served.device->properties())));
  ASSIGN_OR_RETURN(char* const staging, MapStaging(ends, served));
  std::vector<std::unique_ptr<LaneServer>> lanes;
  std::vector<std::thread> threads;
  for (const int socket : ends.lanes) {
    ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, served.device->CreateStream());
    lanes.push_back(std::make_unique<LaneServer>(socket, ends, served, std::move(stream)));
  }
  for (const std::unique_ptr<LaneServer>& lane : lanes)
    threads.emplace_back([&lane, staging] { lane->Serve(staging); });
  Receive<StagingReady>(ends.control).status().IgnoreError();  // returns when the other end closes
  for (const int socket : ends.lanes) shutdown(socket, SHUT_RDWR);
  for (std::thread& thread : threads) thread.join();
  return absl::OkStatus();
}

void ReportFailure(const Ends& ends, const absl::Status& status) {
  Hello hello = {};
  hello.status = ToWire(status);
  Send(ends.control, hello).IgnoreError();
}

}  // namespace warpcall::worker
