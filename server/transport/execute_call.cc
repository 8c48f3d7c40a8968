#include "server/transport/execute_call.h"

#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/engine/retry_pushback.h"
#include "server/log.h"
#include "server/transport/status.h"

namespace warpcall {
namespace {

constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";
// Ids go into every log line about a request.
constexpr size_t kRequestIdBytesMax = 256;
// gRPC cancels a call when its deadline passes, by its own clock: a cancellation this close is the
// deadline's.
constexpr int64_t kDeadlineSlackNs = 2'000'000;

// Clients on a Unix socket have no address of their own and count as one connection.
uint64_t ConnectionOf(const grpc::CallbackServerContext& context) {
  return std::hash<std::string>()(context.peer());
}

int64_t DeadlineNs(const grpc::CallbackServerContext& context, int64_t now_ns) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return kNoDeadline;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      deadline - std::chrono::system_clock::now());
  return left.count() >= kNoDeadline - now_ns ? kNoDeadline : now_ns + left.count();
}

}  // namespace

ExecuteCall::ExecuteCall(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response)
    : deps_(deps),
      context_(context),
      request_(const_cast<grpc::ByteBuffer*>(request)),
      response_(response),
      start_ns_(deps->clock()),
      key_{ConnectionOf(*context), DeadlineNs(*context, start_ns_),
           deps->next_id.fetch_add(1, std::memory_order_relaxed)} {
  deps->open_calls.fetch_add(1);
}

ExecuteCall* ExecuteCall::Start(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* call = new ExecuteCall(deps, context, request, response);
  if (absl::Status status = call->Submit(); !status.ok()) call->Finish(status);
  return call;
}

absl::Status ExecuteCall::Submit() {
  if (const auto bytes = static_cast<int64_t>(request_->Length());
      bytes > deps_->message_bytes_max) {
    trace_.reject_reason = RejectReason::kMessageBytes;
    return WithRetryPushback(absl::ResourceExhaustedError(
                                 absl::StrCat("the message has ", bytes, " bytes; the limit is ",
                                              deps_->message_bytes_max, " (max_message_mib)")),
                             kNeverRetry);
  }
  std::unique_ptr<Job> job;
  ASSIGN_OR_RETURN(job, MakeJob());
  RETURN_IF_ERROR(CheckSizes(*job));
  // From here on a lane may answer, and this call be gone, at any moment: unless Submit refuses.
  device_.store(job->device);
  return deps_->engine->Submit(&job);
}

absl::StatusOr<std::unique_ptr<Job>> ExecuteCall::MakeJob() {
  RETURN_IF_ERROR(decoded_.Decode(*request_));
  const v1::ExecuteRequest& header = decoded_.header();
  if (header.request_id().size() > kRequestIdBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("request_id has ", header.request_id().size(),
                                                   " bytes; the limit is ", kRequestIdBytesMax));
  request_id_ = header.request_id();
  if (request_id_.empty()) request_id_ = absl::StrCat("warpcall-", key_.id);

  const Kernel* kernel;
  ASSIGN_OR_RETURN(kernel, deps_->registry->Find(header.kernel()));
  trace_.kernel = kernel->id;
  RETURN_IF_ERROR(deps_->registry->CheckImplementationName(*kernel, header.implementation()));
  ASSIGN_OR_RETURN(problem_, ToProblem(decoded_, *kernel->op));
  Engine::Choice choice;
  ASSIGN_OR_RETURN(
      choice, deps_->engine->Choose(*kernel, header.implementation(), header.device(), problem_));
  trace_.row = choice.row->id;
  trace_.device = choice.device;
  trace_.data_type = problem_.inputs[0].data_type;
  trace_.work = kernel->op->work(problem_);

  auto job = std::make_unique<Job>();
  job->key = key_;
  job->op = kernel->op;
  job->row = choice.row;
  job->device = choice.device;
  job->problem = problem_;
  for (size_t i = 0; i < problem_.inputs.size(); ++i) {
    job->inputs.push_back(decoded_.data(i).pieces);
    job->input_bytes += static_cast<int64_t>(decoded_.data(i).size);
  }
  for (const TensorSpec& spec : problem_.outputs)
    job->output_bytes += static_cast<int64_t>(spec.bytes());
  job->cancelled = &cancelled_;
  job->trace = &trace_;
  job->release_inputs = [this] {
    decoded_.ReleaseData();
    request_->Clear();
  };
  job->done = [this](absl::Status status, StagingBuffers outputs) {
    Answer(std::move(status), std::move(outputs));
  };
  return job;
}

absl::Status ExecuteCall::CheckSizes(const Job& job) {
  if (job.output_bytes <= deps_->message_bytes_max) return absl::OkStatus();
  trace_.reject_reason = RejectReason::kMessageBytes;
  return WithRetryPushback(
      absl::ResourceExhaustedError(absl::StrCat(
          "the output ", ToString(job.problem.outputs[0]), " has ", job.output_bytes,
          " bytes; the limit is ", deps_->message_bytes_max, " bytes (max_message_mib)")),
      kNeverRetry);
}

void ExecuteCall::OnCancel() {
  cancelled_.store(true);
  const int device = device_.load();
  if (device >= 0) deps_->engine->Cancel(device, key_);
}

void ExecuteCall::Answer(absl::Status status, StagingBuffers outputs) {
  if (status.ok() && cancelled_.load())
    status = absl::CancelledError("the client went away while the device worked");
  if (status.ok()) FillResponse(std::move(outputs));
  Finish(status);
}

void ExecuteCall::FillResponse(StagingBuffers outputs) {
  trace_.total_ns = deps_->clock() - start_ns_;
  v1::ExecuteResponse rest;
  rest.set_implementation(
      deps_->registry->rows()[static_cast<size_t>(trace_.row)].implementation.name);
  rest.set_device(deps_->engine->device(trace_.device).properties().name);
  rest.set_request_id(request_id_);
  v1::Timing& timing = *rest.mutable_timing();
  timing.set_queue_ns(trace_.queue_ns);
  timing.set_copy_in_ns(trace_.copy_in_ns);
  timing.set_h2d_ns(trace_.h2d_ns);
  timing.set_kernel_ns(trace_.kernel_ns);
  timing.set_d2h_ns(trace_.d2h_ns);
  timing.set_total_ns(trace_.total_ns);
  v1::LaunchInfo& launch = *rest.mutable_launch();
  launch.set_bytes_moved(trace_.work.bytes);
  launch.set_flops(trace_.work.flops);
  launch.set_theoretical_occupancy(trace_.launch.theoretical_occupancy);
  launch.set_waves(trace_.launch.waves);
  launch.set_gpu_kernels(trace_.launch.gpu_kernels);
  *response_ = EncodeResponse(rest, problem_, std::move(outputs));
}

void ExecuteCall::Finish(const absl::Status& status) {
  trace_.code = status.code();
  if (absl::IsCancelled(status) && deps_->clock() >= key_.deadline_ns - kDeadlineSlackNs) {
    trace_.code = absl::StatusCode::kDeadlineExceeded;
    trace_.reject_reason = RejectReason::kDeadline;
  }
  if (trace_.total_ns == 0) trace_.total_ns = deps_->clock() - start_ns_;
  deps_->metrics->Record(trace_);
  LogEnd(status);
  if (const auto pushback_ms = RetryPushbackMs(status); pushback_ms.has_value())
    context_->AddTrailingMetadata(kPushbackTrailer, absl::StrCat(*pushback_ms));
  grpc::ServerUnaryReactor::Finish(ToGrpcStatus(status));
}

void ExecuteCall::LogEnd(const absl::Status& status) const {
  const LogLevel level = status.ok() ? LogLevel::kDebug
                         : absl::IsInternal(status) || absl::IsUnavailable(status)
                             ? LogLevel::kError
                             : LogLevel::kInfo;
  if (!LogEnabled(level)) return;
  const Registry& registry = *deps_->registry;
  const size_t kernel = static_cast<size_t>(trace_.kernel);
  const size_t row = static_cast<size_t>(trace_.row);
  Log(level, status.ok() ? "request done" : "request failed",
      {{"request_id", request_id_},
       {"peer", context_->peer()},
       {"kernel", trace_.kernel < 0 ? "" : registry.kernels()[kernel].op->name},
       {"implementation", trace_.row < 0 ? "" : registry.rows()[row].implementation.name},
       {"code", CodeName(trace_.code)},
       {"queue_ns", trace_.queue_ns},
       {"kernel_ns", trace_.kernel_ns},
       {"device_ns", trace_.device_ns},
       {"total_ns", trace_.total_ns},
       {"error", absl::string_view(status.message())}});
}

}  // namespace warpcall
