#include "server/engine/fair_queue.h"

#include <algorithm>
#include <cstdlib>

#include "absl/container/inlined_vector.h"

namespace warpcall {
namespace {

// How far a connection may be ahead of the others before they go first: enough for deadlines to
// order what a few connections send, and short beside the latencies that a burst must not raise.
constexpr int64_t kTurnNs = 1'000'000;
// Looked at for the earliest deadline, and for the work ahead; bounds the time under the lock.
constexpr size_t kConnectionsLookedAtMax = 64;
constexpr int kJobsLookedAtMax = 1024;
// Jobs of one connection that are asked whether they are held back.
constexpr int kJobsHeldBackMax = 64;
// Connections without jobs whose accounts are kept, so that one that sends its jobs one by one
// does not start anew each time.
constexpr size_t kIdleConnectionsMax = 1024;

// The first of a connection's jobs that is not held back; null when those looked at all are.
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
  const uint64_t id = job->key.connection;
  std::unique_ptr<Connection>& connection = connections_[id];
  if (connection == nullptr) connection = std::make_unique<Connection>();
  if (connection->jobs.empty()) {
    connection->account_ns = std::max(connection->account_ns, account_now_ns_);
    by_account_.emplace(connection->account_ns, id);
  }
  if (job->is_to_be_prepared) ++to_be_prepared_;
  const Load load = LoadOf(*job);
  for (size_t i = 0; i < load.size(); ++i) {
    load_[i] += load[i];
    connection->load[i] += load[i];
  }
  const Order order(job->key.deadline_ns, job->key.id);
  connection->jobs.emplace(order, std::move(job));
}

std::unique_ptr<Job> FairQueue::Take(uint64_t id, Connection* connection, const Order& order) {
  const auto found = connection->jobs.find(order);
  if (found == connection->jobs.end()) return nullptr;
  std::unique_ptr<Job> job = std::move(found->second);
  connection->jobs.erase(found);
  if (job->is_to_be_prepared) --to_be_prepared_;
  const Load load = LoadOf(*job);
  for (size_t i = 0; i < load.size(); ++i) {
    load_[i] -= load[i];
    connection->load[i] -= load[i];
  }
  if (connection->jobs.empty()) {
    by_account_.erase({connection->account_ns, id});
    ForgetIdle();
  }
  return job;
}

std::unique_ptr<Job> FairQueue::Pop(absl::FunctionRef<bool(Job&)> may_run,
                                    absl::FunctionRef<bool(Job&)> held_back) {
  struct Candidate {
    uint64_t id;
    Connection* connection;
    const Order& order() const { return connection->jobs.begin()->first; }
  };
  // By account, within a turn of the first. Those passed over leave, and others take their places.
  absl::InlinedVector<Candidate, kConnectionsLookedAtMax> candidates;
  auto next = by_account_.begin();
  for (;;) {
    for (; next != by_account_.end() && candidates.size() < kConnectionsLookedAtMax; ++next) {
      const auto [account_ns, id] = *next;
      if (!candidates.empty() && account_ns > candidates[0].connection->account_ns + kTurnNs) break;
      candidates.push_back({id, connections_.find(id)->second.get()});
    }
    if (candidates.empty()) return nullptr;
    const auto chosen = std::min_element(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.order() < b.order(); });
    const auto [id, connection] = *chosen;
    Job* const job = FirstFree(connection->jobs, held_back);
    if (job == nullptr || !may_run(*job)) {
      candidates.erase(chosen);
      continue;
    }
    account_now_ns_ = std::max(account_now_ns_, by_account_.begin()->first);
    Charge(id, connection, job->predicted_ns);
    return Take(id, connection, {job->key.deadline_ns, job->key.id});
  }
}

void FairQueue::Charge(uint64_t id, Connection* connection, int64_t ns) {
  const bool waits = !connection->jobs.empty();
  if (waits) by_account_.erase({connection->account_ns, id});
  connection->account_ns += ns;
  if (waits) by_account_.emplace(connection->account_ns, id);
}

void FairQueue::Correct(uint64_t id, int64_t ns) {
  if (std::abs(ns) < kTurnNs) return;  // not worth the search
  const auto found = connections_.find(id);
  if (found != connections_.end()) Charge(id, found->second.get(), ns);
}

std::vector<std::unique_ptr<Job>> FairQueue::TakeStarved(int64_t now_ns, int64_t starved_ns_max,
                                                         absl::FunctionRef<bool(Job&)> held_back,
                                                         absl::FunctionRef<bool(const Job&)> fits) {
  const int64_t until_ns = now_ns - starved_ns_max;
  std::vector<JobKey> keys;
  for (const auto& [account_ns, id] : by_account_) {
    const auto& jobs = connections_.find(id)->second->jobs;
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
  for (const JobKey& key : keys) starved.push_back(Remove(key));
  return starved;
}

bool FairQueue::HasJobsOf(uint64_t connection) const {
  const auto found = connections_.find(connection);
  return found != connections_.end() && !found->second->jobs.empty();
}

std::unique_ptr<Job> FairQueue::Remove(const JobKey& key) {
  const auto found = connections_.find(key.connection);
  if (found == connections_.end()) return nullptr;
  return Take(key.connection, found->second.get(), {key.deadline_ns, key.id});
}

FairQueue::Connection* FairQueue::FindLarger(Resource resource, uint64_t connection, int64_t more,
                                             uint64_t* id) const {
  const auto r = static_cast<size_t>(resource);
  const auto own = connections_.find(connection);
  const int64_t held = own == connections_.end() ? 0 : own->second->load[r];
  Connection* largest = nullptr;
  for (const auto& [account_ns, candidate_id] : by_account_) {
    Connection* const candidate = connections_.find(candidate_id)->second.get();
    if (largest != nullptr && candidate->load[r] <= largest->load[r]) continue;
    *id = candidate_id;
    largest = candidate;
  }
  return largest == nullptr || largest->load[r] <= held + more ? nullptr : largest;
}

bool FairQueue::MakesRoomFor(uint64_t connection) const {
  uint64_t id = 0;
  return FindLarger(Resource::kRequests, connection, 1, &id) != nullptr;
}

std::unique_ptr<Job> FairQueue::TakeFromLargest(Resource resource, const Job& newcomer) {
  uint64_t id = 0;
  Connection* const largest = FindLarger(resource, newcomer.key.connection,
                                         LoadOf(newcomer)[static_cast<size_t>(resource)], &id);
  if (largest == nullptr || id == newcomer.key.connection) return nullptr;
  return Take(id, largest, std::prev(largest->jobs.end())->first);
}

int64_t FairQueue::WorkAheadOf(const Job& job) const {
  const Order order(job.key.deadline_ns, job.key.id);
  int64_t ahead_ns = 0;
  int looked_at = 0;
  for (const auto& [account_ns, id] : by_account_) {
    // What another connection has before us in time counts for a turn at most: then it is ours.
    int64_t left_ns = id == job.key.connection ? kNoDeadline : kTurnNs;
    for (const auto& [other, waiting] : connections_.find(id)->second->jobs) {
      if (other > order || left_ns <= 0) break;
      if (++looked_at > kJobsLookedAtMax) return ahead_ns;
      ahead_ns += std::min(waiting->predicted_ns, left_ns);
      left_ns -= waiting->predicted_ns;
    }
  }
  return ahead_ns;
}

int64_t FairQueue::OldestSubmittedNs() const {
  int64_t oldest_ns = kNoDeadline;
  for (const auto& [account_ns, id] : by_account_)
    for (const auto& [order, job] : connections_.find(id)->second->jobs)
      oldest_ns = std::min(oldest_ns, job->submitted_ns);
  return oldest_ns;
}

void FairQueue::ForgetIdle() {
  if (connections_.size() <= by_account_.size() + kIdleConnectionsMax) return;
  absl::erase_if(connections_, [](const auto& entry) { return entry.second->jobs.empty(); });
}

}  // namespace warpcall
