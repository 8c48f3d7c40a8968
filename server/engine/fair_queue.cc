#include "server/engine/fair_queue.h"

#include <algorithm>
#include <cstdlib>

#include "absl/container/inlined_vector.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

// How far a principal may be ahead of the others before they go first: enough for deadlines to
// order the jobs of a few principals, and short beside the latencies that a burst must not raise.
constexpr int64_t kTurnNs = 1'000'000;
// Searched for the earliest deadline and the work ahead; bounds the time under the lock.
constexpr size_t kPrincipalsLookedAtMax = 64;
constexpr int kJobsLookedAtMax = 1024;
// Jobs of one principal that are tested for being held back.
constexpr int kJobsHeldBackMax = 64;
// Principals without jobs whose accounts are kept, so that a principal that sends its jobs one by
// one does not start anew each time.
constexpr size_t kIdlePrincipalsMax = 1024;

// Returns a principal's first job that is not held back; null if the tested ones all are.
template <typename Jobs>
Job* FirstFree(const Jobs& jobs, absl::FunctionRef<bool(Job&)> held_back) {
  int looked_at = 0;
  for (const auto& [order, job] : jobs) {
    if (!held_back(*job)) return job.get();
    if (++looked_at == kJobsHeldBackMax) break;
  }
  return nullptr;
}

}  // namespace

Load LoadOf(const Job& job) { return {1, job.input_bytes, job.predicted_ns}; }

void FairQueue::Push(std::unique_ptr<Job> job) {
  WARPCALL_DCHECK(job != nullptr && job->share > 0, job->share);
  WARPCALL_DCHECK(job->input_bytes >= 0 && job->predicted_ns >= 0, job->input_bytes,
                  job->predicted_ns);
  const uint64_t id = job->key.principal;
  std::unique_ptr<Principal>& principal = principals_[id];
  if (principal == nullptr) principal = std::make_unique<Principal>();
  principal->share = job->share;
  if (principal->jobs.empty()) {
    principal->account_ns = std::max(principal->account_ns, account_now_ns_);
    by_account_.emplace(principal->account_ns, id);
  }
  if (job->is_to_be_prepared) ++to_be_prepared_;
  const Load load = LoadOf(*job);
  for (size_t i = 0; i < load.size(); ++i) {
    load_[i] += load[i];
    principal->load[i] += load[i];
  }
  const Order order(job->key.deadline_ns, job->key.id);
  const bool is_new = principal->jobs.emplace(order, std::move(job)).second;
  WARPCALL_CHECK(is_new, order.first, order.second);  // ids are unique: nobody would end the job
}

std::unique_ptr<Job> FairQueue::Take(uint64_t id, Principal* principal, const Order& order) {
  const auto found = principal->jobs.find(order);
  if (found == principal->jobs.end()) return nullptr;
  std::unique_ptr<Job> job = std::move(found->second);
  principal->jobs.erase(found);
  if (job->is_to_be_prepared) --to_be_prepared_;
  const Load load = LoadOf(*job);
  for (size_t i = 0; i < load.size(); ++i) {
    load_[i] -= load[i];
    principal->load[i] -= load[i];
  }
  WARPCALL_DCHECK(load_[0] >= 0 && load_[1] >= 0 && load_[2] >= 0, load_[0], load_[1], load_[2]);
  WARPCALL_DCHECK(to_be_prepared_ >= 0 && to_be_prepared_ <= load_[0], to_be_prepared_, load_[0]);
  if (principal->jobs.empty()) {
    const size_t erased = by_account_.erase({principal->account_ns, id});
    WARPCALL_DCHECK(erased == 1, principal->account_ns, id);
    ForgetIdle();
  }
  return job;
}

std::unique_ptr<Job> FairQueue::Pop(absl::FunctionRef<bool(Job&)> may_run,
                                    absl::FunctionRef<bool(Job&)> held_back) {
  struct Front {
    uint64_t id;
    Principal* principal;
    const Order& order() const { return principal->jobs.begin()->first; }
  };
  // By account, within a turn of the first. Principals that can't run leave, and others follow.
  absl::InlinedVector<Front, kPrincipalsLookedAtMax> candidates;
  auto next = by_account_.begin();
  for (;;) {
    for (; next != by_account_.end() && candidates.size() < kPrincipalsLookedAtMax; ++next) {
      const auto [account_ns, id] = *next;
      if (!candidates.empty() && account_ns > candidates[0].principal->account_ns + kTurnNs) break;
      candidates.push_back({id, principals_.find(id)->second.get()});
    }
    if (candidates.empty()) return nullptr;
    const auto chosen = std::min_element(
        candidates.begin(), candidates.end(),
        [](const Front& a, const Front& b) { return a.order() < b.order(); });
    const auto [id, principal] = *chosen;
    Job* const job = FirstFree(principal->jobs, held_back);
    if (job == nullptr || !may_run(*job)) {
      candidates.erase(chosen);
      continue;
    }
    account_now_ns_ = std::max(account_now_ns_, by_account_.begin()->first);
    Charge(id, principal, job->predicted_ns);
    return Take(id, principal, {job->key.deadline_ns, job->key.id});
  }
}

void FairQueue::Charge(uint64_t id, Principal* principal, int64_t ns) {
  WARPCALL_DCHECK(principal->share > 0, id, principal->share);
  const bool waits = !principal->jobs.empty();
  if (waits) by_account_.erase({principal->account_ns, id});
  principal->account_ns += static_cast<int64_t>(static_cast<double>(ns) / principal->share);
  if (waits) by_account_.emplace(principal->account_ns, id);
}

void FairQueue::Correct(uint64_t id, int64_t ns) {
  if (std::abs(ns) < kTurnNs) return;  // not worth the search
  const auto found = principals_.find(id);
  if (found != principals_.end()) Charge(id, found->second.get(), ns);
}

std::vector<std::unique_ptr<Job>> FairQueue::TakeStarved(int64_t now_ns, int64_t starved_ns_max,
                                                         absl::FunctionRef<bool(Job&)> held_back,
                                                         absl::FunctionRef<bool(const Job&)> fits) {
  const int64_t until_ns = now_ns - starved_ns_max;
  std::vector<JobKey> keys;
  for (const auto& [account_ns, id] : by_account_) {
    const auto& jobs = principals_.find(id)->second->jobs;
    Job* const next = FirstFree(jobs, held_back);
    if (next == nullptr) continue;
    if (fits(*next)) {
      next->starved_since_ns = 0;
      continue;
    }
    if (next->starved_since_ns == 0) next->starved_since_ns = now_ns;
    if (next->starved_since_ns > until_ns) continue;
    for (auto job = jobs.find({next->key.deadline_ns, next->key.id}); job != jobs.end(); ++job)
      if (job->second->submitted_ns <= until_ns) keys.push_back(job->second->key);
  }
  std::vector<std::unique_ptr<Job>> starved;
  for (const JobKey& key : keys) {
    starved.push_back(Remove(key));
    WARPCALL_CHECK(starved.back() != nullptr, key.id);
  }
  return starved;
}

bool FairQueue::HasJobsOf(uint64_t principal) const {
  const auto found = principals_.find(principal);
  return found != principals_.end() && !found->second->jobs.empty();
}

std::unique_ptr<Job> FairQueue::Remove(const JobKey& key) {
  const auto found = principals_.find(key.principal);
  if (found == principals_.end()) return nullptr;
  return Take(key.principal, found->second.get(), {key.deadline_ns, key.id});
}

FairQueue::Principal* FairQueue::FindLarger(Resource resource, uint64_t principal, int64_t more,
                                            uint64_t* id) const {
  const auto r = static_cast<size_t>(resource);
  const auto own = principals_.find(principal);
  const int64_t held = own == principals_.end() ? 0 : own->second->load[r];
  Principal* largest = nullptr;
  for (const auto& [account_ns, candidate_id] : by_account_) {
    Principal* const candidate = principals_.find(candidate_id)->second.get();
    if (largest != nullptr && candidate->load[r] <= largest->load[r]) continue;
    *id = candidate_id;
    largest = candidate;
  }
  return largest == nullptr || largest->load[r] <= held + more ? nullptr : largest;
}

bool FairQueue::MakesRoomFor(uint64_t principal) const {
  uint64_t id = 0;
  return FindLarger(Resource::kRequests, principal, 1, &id) != nullptr;
}

std::unique_ptr<Job> FairQueue::TakeFromLargest(Resource resource, const Job& newcomer) {
  uint64_t id = 0;
  Principal* const largest = FindLarger(resource, newcomer.key.principal,
                                        LoadOf(newcomer)[static_cast<size_t>(resource)], &id);
  if (largest == nullptr || id == newcomer.key.principal) return nullptr;
  WARPCALL_CHECK(!largest->jobs.empty(), id);
  return Take(id, largest, std::prev(largest->jobs.end())->first);
}

int64_t FairQueue::WorkAheadOf(const Job& job) const {
  const Order order(job.key.deadline_ns, job.key.id);
  int64_t ahead_ns = 0;
  int looked_at = 0;
  for (const auto& [account_ns, id] : by_account_) {
    // Earlier jobs of another principal count for a turn at most: after that it is our turn.
    int64_t left_ns = id == job.key.principal ? kNoDeadline : kTurnNs;
    for (const auto& [other, waiting] : principals_.find(id)->second->jobs) {
      if (other > order || left_ns <= 0) break;
      if (++looked_at > kJobsLookedAtMax) return ahead_ns;
      ahead_ns += std::min(waiting->predicted_ns, left_ns);
      left_ns -= waiting->predicted_ns;
    }
  }
  return ahead_ns;
}

int64_t FairQueue::OldestSubmittedNs() const {
  WARPCALL_DCHECK(!empty());
  int64_t oldest_ns = kNoDeadline;
  for (const auto& [account_ns, id] : by_account_)
    for (const auto& [order, job] : principals_.find(id)->second->jobs)
      oldest_ns = std::min(oldest_ns, job->submitted_ns);
  return oldest_ns;
}

void FairQueue::CheckInvariants() const {
  Load load = {};
  int64_t to_be_prepared = 0;
  size_t waiting = 0;
  for (const auto& [id, principal] : principals_) {
    Load own = {};
    for (const auto& [order, job] : principal->jobs) {
      WARPCALL_CHECK(job->key.principal == id && order == Order(job->key.deadline_ns, job->key.id),
                     id, job->key.id);
      const Load of_job = LoadOf(*job);
      for (size_t i = 0; i < own.size(); ++i) own[i] += of_job[i];
      if (job->is_to_be_prepared) ++to_be_prepared;
    }
    WARPCALL_CHECK(own == principal->load, id, own[0], principal->load[0]);
    for (size_t i = 0; i < own.size(); ++i) load[i] += own[i];
    if (principal->jobs.empty()) continue;
    ++waiting;
    WARPCALL_CHECK(by_account_.contains({principal->account_ns, id}), id, principal->account_ns);
  }
  WARPCALL_CHECK(load == load_, load[0], load_[0], load[1], load_[1], load[2], load_[2]);
  WARPCALL_CHECK(waiting == by_account_.size(), waiting, by_account_.size());
  WARPCALL_CHECK(to_be_prepared == to_be_prepared_, to_be_prepared, to_be_prepared_);
}

void FairQueue::ForgetIdle() {
  if (principals_.size() <= by_account_.size() + kIdlePrincipalsMax) return;
  absl::erase_if(principals_, [](const auto& entry) { return entry.second->jobs.empty(); });
}

}  // namespace warpcall
