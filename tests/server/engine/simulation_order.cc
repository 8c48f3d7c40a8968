// Finds the next of the waiting jobs, and the lane that may run it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/server/engine/simulation_oracle.h"

namespace warpcall::testing {
namespace {

// The engine's own, as in simulation_oracle.cc.
constexpr int64_t kTurnNs = 1'000'000;
constexpr int64_t kLongNs = 100'000'000;

}  // namespace

bool Oracle::MayBeLong(const Job& job) { return job.predicted_ns_at_most > kLongNs; }

std::pair<int64_t, uint64_t> Oracle::OrderOf(const Request& request) {
  return {request.key.deadline_ns, request.key.id};
}

bool Oracle::LongOnesWait(int device, bool as_it_turned_out) const {
  const auto long_ones =
      std::count_if(requests_.begin(), requests_.end(), [&](const auto& request) {
        return request->lane == LaneKind::kOrdinary && request->device == device &&
               (request->may_be_long ||
                (as_it_turned_out && now_ns_ - request->taken_ns > kLongNs));
      });
  return options_.lanes_per_device > 1 && long_ones >= options_.lanes_per_device - 1;
}

bool Oracle::IsPrepared(const Request& request) const {
  return !request.to_prepare.has_value() ||
         prepared_.count({request.device, *request.to_prepare}) != 0;
}

LaneKind Oracle::LaneOf(const Request& waiting) const {
  return IsPrepared(waiting) || MayBeLong(*waiting.job) ? LaneKind::kOrdinary
                                                        : LaneKind::kPreparing;
}

bool Oracle::HeldBack(const Request& waiting, bool as_it_turned_out) const {
  if (LaneOf(waiting) == LaneKind::kOrdinary)
    return MayBeLong(*waiting.job) && LongOnesWait(waiting.device, as_it_turned_out);
  return std::any_of(requests_.begin(), requests_.end(), [&](const auto& other) {
    return other->lane == LaneKind::kPreparing && other->device == waiting.device &&
           other->to_prepare == waiting.to_prepare;
  });
}

const Request* Oracle::NextOf(const Of& of, bool as_it_turned_out) const {
  const Request* next = nullptr;
  for (const auto& request : requests_) {
    if (request->state != Request::State::kWaits || request->device != of.device ||
        request->key.principal != of.principal)
      continue;
    if (of.lane.has_value() && LaneOf(*request) != *of.lane) continue;
    if (HeldBack(*request, as_it_turned_out)) continue;
    if (next == nullptr || OrderOf(*request) < OrderOf(*next)) next = request.get();
  }
  return next;
}

const Request* Oracle::NextThatMayRun(const Of& of, const StagingPool& staging,
                                      bool as_it_turned_out) const {
  const Request* const next = NextOf(of, as_it_turned_out);
  if (next == nullptr) return nullptr;
  // The pool only decides if the free memory is contiguous.
  constexpr uint64_t kHoldsNothing = kPrincipalsMax;
  return MayHave(*next) && staging.HasRoom({next->input_bytes, next->output_bytes}, kHoldsNothing)
             ? next
             : nullptr;
}

void Oracle::Comes(const Request& request) {
  Books& books = books_[request.device];
  Account& account = books.of[request.key.principal];
  books.before_push = account;
  const bool others_wait = std::any_of(requests_.begin(), requests_.end(), [&](const auto& other) {
    return other->state == Request::State::kWaits && other->device == request.device &&
           other->key.principal == request.key.principal;
  });
  if (!others_wait) account.RaiseLeast(books.present.least_ns);
  // Those others may have left in a callback.
  if (!others_wait || depth_ > 0) account.RaiseMost(books.present.most_ns);
}

void Oracle::DoesNotWait(const Request& request) {
  Books& books = books_[request.device];
  books.of[request.key.principal] = books.before_push;
}

void Oracle::Charge(const Request& request) {
  Books& books = books_[request.device];
  Account& own = books.of[request.key.principal];
  Account lowest = own;
  for (const auto& other : requests_) {
    if (other->state != Request::State::kWaits || other->device != request.device) continue;
    const Account& account = books.of[other->key.principal];
    lowest.least_ns = std::min(lowest.least_ns, account.least_ns);
    if (depth_ == 0) lowest.most_ns = std::min(lowest.most_ns, account.most_ns);
  }
  books.present.RaiseLeast(lowest.least_ns);
  books.present.RaiseMost(lowest.most_ns);
  own.Add(request.predicted_ns);
}

void Oracle::CheckTurn(const Request& request, LaneKind lane, const StagingPool& staging) {
  const Books& books = books_[request.device];
  const int64_t own_ns = books.of[request.key.principal].least_ns;
  for (uint64_t other = 0; other < kPrincipalsMax; ++other) {
    const int64_t bound_ns = books.of[other].most_ns + kTurnNs;
    if (own_ns > bound_ns && NextThatMayRun({request.device, other, lane}, staging) != nullptr)
      Fail(absl::StrCat("principal ", other, " falls behind: its next job might have run, and ",
                        "principal ", request.key.principal, " was given one, whose account is ",
                        own_ns, " ns at least; the bound is ", bound_ns));
  }
}

void Oracle::Prepares(const Request& request) {
  Expect(IsPrepared(request) || request.may_be_long || request.lane == LaneKind::kPreparing,
         request, "is prepared on a lane that others wait for");
}

void Oracle::Prepared(const Request& request) {
  if (request.to_prepare.has_value()) prepared_.insert({request.device, *request.to_prepare});
}

void Oracle::NothingToDo(int device, LaneKind kind, const StagingPool& staging, bool watched) {
  for (uint64_t principal = 0; principal < kPrincipalsMax; ++principal)
    if (const Request* next = NextThatMayRun({device, principal, kind}, staging, watched);
        next != nullptr && NextThatMayRun({device, principal, kind}, staging) != nullptr)
      Expect(false, *next,
             kind == LaneKind::kPreparing ? "may run, the preparing lane sleeps, and is not called"
                                          : "may run, a lane sleeps, and none is called");
}

}  // namespace warpcall::testing
