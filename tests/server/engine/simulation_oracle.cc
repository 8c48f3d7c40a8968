#include "tests/server/engine/simulation_oracle.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/common/human_figures.h"
#include "server/engine/refusal.h"
#include "server/engine/run_watch.h"

namespace warpcall::testing {
namespace {

// Copies of the engine's limits: a change of one of them changes what clients see.
constexpr int64_t kStarvedNs = 2'000'000'000;
constexpr int64_t kTurnNs = 1'000'000;
constexpr size_t kRequests = static_cast<size_t>(Resource::kRequests);
constexpr size_t kBytes = static_cast<size_t>(Resource::kBytes);
constexpr size_t kWork = static_cast<size_t>(Resource::kWorkNs);

size_t Pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

void Oracle::Fail(absl::string_view what) {
  if (failure_.empty()) failure_ = std::string(what);
}

void Oracle::Expect(bool holds, const Request& request, absl::string_view what) {
  if (!holds) Fail(absl::StrCat("request ", request.key.id, " ", what));
}

Load Oracle::Waiting(int device, int64_t principal) const {
  Load sum = {};
  for (const auto& request : requests_) {
    if (request->state != Request::State::kWaits || request->device != device) continue;
    if (principal >= 0 && request->key.principal != static_cast<uint64_t>(principal)) continue;
    const Load load = LoadOf(*request->job);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += load[i];
  }
  return sum;
}

size_t Oracle::Staged(int device, int64_t principal) const {
  size_t bytes = 0;
  for (const auto& request : requests_) {
    if (request->device != device) continue;
    if (principal >= 0 && request->key.principal != static_cast<uint64_t>(principal)) continue;
    if (request->state == Request::State::kHasLane)
      bytes += Pages(request->input_bytes) + Pages(request->output_bytes);
    if (!request->answer.empty()) bytes += Pages(request->output_bytes);
  }
  return bytes;
}

bool Oracle::MayHave(const Request& request) const {
  const size_t wanted = Pages(request.input_bytes) + Pages(request.output_bytes);
  const size_t held = Staged(request.device, static_cast<int64_t>(request.key.principal));
  const size_t free = options_.staging_bytes - Staged(request.device);
  return wanted <= free && (held == 0 || held + wanted <= free - wanted);
}

int64_t Oracle::RunningNs(int device) const {
  int64_t ns = 0;
  for (const auto& request : requests_)
    if (request->lane == LaneKind::kOrdinary && request->device == device)
      ns += std::max<int64_t>(0, request->taken_ns + request->predicted_ns - now_ns_);
  return ns;
}

int64_t Oracle::PushbackMs(int device, int64_t work_ns) const {
  const int64_t wait_ns = (RunningNs(device) + work_ns) / options_.lanes_per_device;
  return std::clamp<int64_t>(wait_ns / 1'000'000, 1, 5000);
}

std::string Oracle::FullText(size_t resource, const Load& held, const Load& own,
                             bool makes_room) const {
  const auto loads = [&](auto in_unit) {
    return makes_room ? absl::StrCat(", ", in_unit(own[resource]), " of them this request's,")
                      : absl::StrCat(" and ", in_unit(own[resource]), " more to come,");
  };
  const QueueLimits& limits = options_.queue;
  if (resource == kRequests)
    return absl::StrCat(held[kRequests], " requests waiting, the limit is ", limits.requests_max,
                        " (queue_limit)");
  if (resource == kBytes)
    return absl::StrCat(held[kBytes], " bytes waiting", loads([](int64_t bytes) { return bytes; }),
                        " the limit is ", limits.bytes_max, " bytes (queue_mib)");
  return absl::StrCat(HumanTime(held[kWork]), " of predicted work waiting", loads(HumanTime),
                      " the limit is ", HumanTime(limits.work_ns_max), " (queue_seconds)");
}

void Oracle::CheckTold(const Request& request, const absl::Status& status, const std::string& text,
                       std::optional<int64_t> pushback_ms) {
  const std::optional<int64_t> told_ms = RetryPushbackMs(status);
  Expect(told_ms.has_value() && (!pushback_ms.has_value() || told_ms == pushback_ms), request,
         absl::StrCat("is to come again in ", told_ms.value_or(0), " ms, not ",
                      pushback_ms.value_or(0)));
  Expect(absl::StrContains(status.message(), text), request,
         absl::StrCat("is told \"", status.message(), "\", not \"", text, "\""));
}

Oracle::Before Oracle::BeforeSubmit(const Request& request) const {
  Before before;
  before.refuses = refusing_ && (closed_ || !request.continues);
  before.may_refuse = refusing_ && (closing_ || !request.continues);
  for (int principal = 0; principal < kPrincipalsMax; ++principal) {
    const Load load = Waiting(request.device, principal);
    for (size_t i = 0; i < load.size(); ++i) before.all[i] += load[i];
    before.requests_of_most = std::max(before.requests_of_most, load[kRequests]);
    if (request.key.principal == static_cast<uint64_t>(principal)) before.own = load;
  }
  before.running_ns = RunningNs(request.device);
  return before;
}

void Oracle::AskedForRoom(uint64_t principal, int devices, const absl::Status& room) {
  if (depth_ > 0) return;
  bool hopeless = !refusing_;  // a draining engine has other errors
  Request request;
  request.key.principal = principal;
  for (request.device = 0; request.device < devices; ++request.device) {
    const Before before = BeforeSubmit(request);
    hopeless &= before.all[kRequests] >= options_.queue.requests_max && before.own[kRequests] > 0 &&
                before.requests_of_most <= before.own[kRequests] + 1;
  }
  if (room.ok() == hopeless)
    Fail(absl::StrCat("principal ", principal, " has room: ", room.ToString()));
  request.device = devices - 1;
  if (!room.ok())
    CheckTold(request, room, FullText(kRequests, Waiting(request.device), {}, false),
              PushbackMs(request.device, Waiting(request.device)[kWork]));
}

void Oracle::Submitted(const Request& request, const Before& before, const absl::Status& status,
                       const Job* job) {
  const bool expired = request.submitted_ns >= request.key.deadline_ns;
  const size_t staging = Pages(request.input_bytes) + Pages(request.output_bytes);
  const Job* const there = job == nullptr ? request.job : job;
  const int64_t predicted_ns = there == nullptr ? request.predicted_ns : there->predicted_ns;
  if (predicted_ns != request.prediction.ns)
    Expect(false, request,
           absl::StrCat("is predicted ", predicted_ns, " ns, its kernels ", request.prediction.ns));
  if (!status.ok()) {
    DoesNotWait(request);
    // Principals that made room in vain are put back, as if they came anew.
    Books& books = books_[request.device];
    for (Account& account : books.of) account.RaiseMost(books.present.most_ns);
    Expect(job != nullptr && request.ends == 0, request, "was refused and ended");
    if (job != nullptr) CheckRefusal(request, before, status, *job);
    return;
  }
  Expect(!expired, request, "was taken after its deadline");
  Expect(request.prediction.ns_at_least <= options_.run_ns_max, request,
         "was taken and is known to run for too long");
  Expect(!before.refuses, request, "was taken while the server drains");
  Expect(staging <= options_.staging_bytes, request, "was taken and can never have its staging");
}

void Oracle::CheckRefusal(const Request& request, const Before& before, const absl::Status& status,
                          const Job& job) {
  const Load load = LoadOf(job);
  const int64_t left_ns = request.key.deadline_ns - request.submitted_ns;
  const bool measured = request.key.deadline_ns != kNoDeadline && job.prediction_measured;
  const size_t staging = Pages(request.input_bytes) + Pages(request.output_bytes);
  bool right = false;
  absl::StatusCode code = absl::StatusCode::kResourceExhausted;
  std::string told;
  std::optional<int64_t> pushback_ms = kNeverRetry;
  const auto full = [&](size_t resource) {
    told = FullText(resource, before.all, load, false);
    pushback_ms = PushbackMs(request.device, before.all[kWork]);
  };
  switch (RejectReasonOf(status)) {
    case RejectReason::kNone:
      code = absl::StatusCode::kCancelled;
      right = request.cancelled;
      break;
    case RejectReason::kDeadline:
      code = absl::StatusCode::kDeadlineExceeded;
      right = left_ns <= 0;
      break;
    case RejectReason::kDraining:
      code = absl::StatusCode::kUnavailable;
      right = before.may_refuse;
      told = "draining";
      pushback_ms = kDrainPushbackMs;
      break;
    case RejectReason::kDeadlineUnmeetable:
      told = absl::StrCat("the deadline is ", HumanTime(left_ns), " away");
      if (job.predicted_ns > left_ns) code = absl::StatusCode::kDeadlineExceeded;
      if (job.predicted_ns <= left_ns) pushback_ms = std::nullopt;
      right = measured && (job.predicted_ns > left_ns ||
                           (before.running_ns + before.all[kWork]) / options_.lanes_per_device +
                                   job.predicted_ns >
                               left_ns);
      break;
    case RejectReason::kStagingBytes:
      right = staging > options_.staging_bytes;
      told = absl::StrCat(staging, " bytes of staging memory for inputs and outputs; the limit is ",
                          options_.staging_bytes, " bytes (staging_mib)");
      break;
    case RejectReason::kQueueRequests:
      full(kRequests);
      right = before.all[kRequests] == options_.queue.requests_max &&
              before.requests_of_most <= before.own[kRequests] + 1;
      break;
    case RejectReason::kQueueBytes:
      full(kBytes);
      if (load[kBytes] > options_.queue.bytes_max) pushback_ms = kNeverRetry;
      right = before.all[kBytes] + load[kBytes] > options_.queue.bytes_max;
      break;
    case RejectReason::kQueueWork:
      full(kWork);
      right =
          before.all[kRequests] > 0 && before.all[kWork] + load[kWork] > options_.queue.work_ns_max;
      break;
    case RejectReason::kRunTime:
      right = request.prediction.ns_at_least > options_.run_ns_max;
      told = RunLimitText(options_.run_ns_max);
      break;
    default:
      break;
  }
  Expect(right && status.code() == code, request,
         absl::StrCat("was refused for no such reason: ", status.ToString()));
  if (depth_ == 0 && !told.empty()) CheckTold(request, status, told, pushback_ms);
}

void Oracle::Taken(Request* request, std::optional<LaneKind> lane, const StagingPool& staging) {
  Expect(MayHave(*request), *request, "got more than its principal's share of staging");
  request->predicted_ns = request->job->predicted_ns;
  request->may_be_long = MayBeLong(*request->job);
  request->taken_ns = now_ns_;
  if (lane.has_value()) {
    Expect(*lane == LaneOf(*request), *request, "has a lane of the wrong kind");
    Expect(!HeldBack(*request, true), *request,
           "took the lane that is kept for short work, or prepares what another does");
    Expect(depth_ > 0 || NextOf({request->device, request->key.principal, *lane}, true) == request,
           *request, "passed another of its principal");
    if (depth_ == 0) CheckTurn(*request, *lane, staging);
    Charge(*request);
    request->lane = lane;
  } else {
    DoesNotWait(*request);
    const Load own = Waiting(request->device, static_cast<int64_t>(request->key.principal));
    Expect(depth_ > 0 || own[kRequests] == 1, *request,
           "is carried before others of its principal");
  }
  request->state = Request::State::kHasLane;
}

void Oracle::Left(Request* request) {
  request->lane = std::nullopt;
  const int64_t longer_ns = now_ns_ - request->taken_ns - request->predicted_ns;
  if (std::abs(longer_ns) >= kTurnNs)
    books_[request->device].of[request->key.principal].Add(longer_ns);
}

void Oracle::InputsCopied(const Request& request) {
  Expect(request.state == Request::State::kHasLane && !request.copied, request, "was copied twice");
  Expect(!request.is_unwanted, request, "was copied though nobody waits for it");
}

void Oracle::Begun(const Request& request, const absl::Status& status) {
  const bool expired = now_ns_ >= request.key.deadline_ns;
  Expect(status.ok() == (!expired && !request.cancelled), request,
         absl::StrCat("is about to run with ", status.ToString()));
  Expect(request.trace.queue_ns == request.begun_ns - request.submitted_ns, request,
         absl::StrCat("is said to have waited for ", request.trace.queue_ns, " ns"));
}

void Oracle::Looked(const Request& request, bool is_set) {
  Expect(is_set == (request.cancelled || now_ns_ >= request.key.deadline_ns || drain_over_ ||
                    now_ns_ - request.begun_ns >= options_.run_ns_max),
         request, is_set ? "is stopped for no reason" : "is not stopped");
}

void Oracle::LooksForStarving(int device, const StagingPool& staging) {
  for (uint64_t principal = 0; principal < kPrincipalsMax; ++principal)
    starves_[device][principal] =
        NextOf({device, principal, std::nullopt}, true) != nullptr &&
        NextThatMayRun({device, principal, std::nullopt}, staging) == nullptr;
}

void Oracle::Ended(const Request& request, const absl::Status& status, Ender ender,
                   const Request* newcomer) {
  Expect(request.state != Request::State::kEnded, request, "ends twice");
  Expect(request.state != Request::State::kRefused, request, "was refused and ends");
  if (request.state == Request::State::kWaits) CheckEndOfWaiting(request, status, ender, newcomer);
  if (request.state == Request::State::kHasLane) CheckEndOfRunning(request, status);
}

void Oracle::CheckEndOfWaiting(const Request& request, const absl::Status& status, Ender ender,
                               const Request* newcomer) {
  const RejectReason reason = RejectReasonOf(status);
  const auto own = static_cast<int64_t>(request.key.principal);
  bool right = false;
  absl::StatusCode code = absl::StatusCode::kResourceExhausted;
  switch (ender) {
    case Ender::kNobody:
      break;
    case Ender::kCancel:
      right = request.cancelled;
      if (now_ns_ >= request.key.deadline_ns) right &= reason == RejectReason::kDeadline;
      code = now_ns_ >= request.key.deadline_ns ? absl::StatusCode::kDeadlineExceeded
                                                : absl::StatusCode::kCancelled;
      break;
    case Ender::kStarving:
      right = reason == RejectReason::kStagingBytes && starves_[request.device][own] &&
              now_ns_ - request.submitted_ns >= kStarvedNs;
      CheckTold(request, status,
                absl::StrCat("no room for ", request.input_bytes + request.output_bytes, " bytes"),
                100);
      break;
    case Ender::kEndAll:
      right = reason == RejectReason::kDraining;
      code = absl::StatusCode::kUnavailable;
      break;
    case Ender::kSubmit: {
      const size_t resource = reason == RejectReason::kQueueBytes  ? kBytes
                              : reason == RejectReason::kQueueWork ? kWork
                                                                   : kRequests;
      const int64_t limits[] = {options_.queue.requests_max, options_.queue.bytes_max,
                                options_.queue.work_ns_max};
      if (newcomer != nullptr && newcomer->job != nullptr && depth_ == 0) {
        Load held = Waiting(request.device);
        const Load more = LoadOf(*newcomer->job), own_load = LoadOf(*request.job);
        for (size_t i = 0; i < held.size(); ++i) held[i] -= more[i];
        CheckTold(request, status, FullText(resource, held, own_load, true),
                  PushbackMs(request.device, held[kWork] - own_load[kWork]));
      }
      for (const auto& other : requests_)
        if (depth_ == 0 && other->state == Request::State::kWaits &&
            other->device == request.device && other->key.principal == request.key.principal)
          Expect(OrderOf(*other) <= OrderOf(request), request, "makes room before the last one");
      // While requests end one after the other, those that have still to end do not wait any more.
      right = newcomer != nullptr && newcomer->key.principal != request.key.principal &&
              Waiting(request.device)[resource] > limits[resource] &&
              (depth_ > 0 || Waiting(request.device, own)[resource] >
                                 Waiting(request.device,
                                         static_cast<int64_t>(newcomer->key.principal))[resource]);
      break;
    }
  }
  Expect(right && status.code() == code, request,
         absl::StrCat("ended in the queue with ", status.ToString()));
}

void Oracle::CheckEndOfRunning(const Request& request, const absl::Status& status) {
  bool right = false;
  RejectReason reason = RejectReason::kNone;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      right = request.is_complete() && !request.saw_stop && !request.device_failed;
      break;
    case absl::StatusCode::kCancelled:
      right = request.cancelled && (!request.enqueued || request.is_stopped());
      break;
    case absl::StatusCode::kDeadlineExceeded:
      reason = RejectReason::kDeadline;
      right = now_ns_ >= request.key.deadline_ns && (!request.enqueued || request.is_stopped());
      break;
    case absl::StatusCode::kUnavailable:
      // Both may hold for a request whose stop flag was set while its device broke.
      if (!request.device_failed || (drain_over_ && request.is_stopped()))
        reason = RejectReason::kDraining;
      right = request.device_failed || (drain_over_ && request.is_stopped());
      break;
    case absl::StatusCode::kInternal:
      right = request.preparing_failed;
      break;
    case absl::StatusCode::kResourceExhausted:
      reason = RejectReason::kRunTime;
      right = request.is_stopped() && now_ns_ - request.begun_ns >= options_.run_ns_max;
      break;
    default:
      break;
  }
  // Whatever it was, when the device is found broken as well, that is the reason.
  const RejectReason told = RejectReasonOf(status);
  right &= told == reason || (!status.ok() && told == RejectReason::kDeviceLost);
  Expect(right, request,
         absl::StrCat("ended in its lane with ", status.ToString(), ", ", RejectReasonName(told)));
}

void Oracle::Compare(int device, const Engine::Parts& parts) {
  const Load load = Waiting(device);
  const QueueSnapshot queue = parts.scheduler->Snapshot();
  int64_t oldest_ns = now_ns_;
  for (const auto& request : requests_)
    if (request->state == Request::State::kWaits && request->device == device)
      oldest_ns = std::min(oldest_ns, request->submitted_ns);
  if (queue.oldest_age_seconds != static_cast<double>(now_ns_ - oldest_ns) / 1e9)
    Fail(absl::StrCat("device ", device, "'s oldest is said to be ", queue.oldest_age_seconds,
                      " s old, and came at ", oldest_ns));
  if (queue.depth != load[kRequests] || queue.bytes != load[kBytes] || queue.work_ns != load[kWork])
    Fail(absl::StrCat("device ", device, " says that ", queue.depth, " requests of ", queue.bytes,
                      " bytes and ", queue.work_ns, " ns wait; those that have not ended are ",
                      load[kRequests], " of ", load[kBytes], " and ", load[kWork]));
  if (load[kRequests] > options_.queue.requests_max || load[kBytes] > options_.queue.bytes_max ||
      (load[kWork] > options_.queue.work_ns_max && load[kRequests] > 1))
    Fail(absl::StrCat(load[kRequests], " requests, ", load[kBytes], " bytes and ", load[kWork],
                      " ns wait for device ", device, ": over a limit"));
  if (const size_t staged = Staged(device); parts.staging->used_bytes() != staged)
    Fail(absl::StrCat(parts.staging->used_bytes(), " bytes of staging are in use of device ",
                      device, "; requests and answers have ", staged));
}

void Oracle::AllOver(int64_t devices_lost, bool every_device_is_lost) {
  for (const auto& request : requests_) {
    const int ends = request->state == Request::State::kRefused ? 0 : 1;
    Expect(request->ends == ends, *request, absl::StrCat("ended ", request->ends, " times"));
  }
  if (devices_lost != (every_device_is_lost ? 1 : 0))
    Fail(absl::StrCat("the loss of the devices was told ", devices_lost, " times"));
}

}  // namespace warpcall::testing
