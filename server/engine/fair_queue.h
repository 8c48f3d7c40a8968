// The jobs that wait for one device, in an order that is fair to principals.
//
// Every principal has an account of the device time that its jobs were predicted to take. The next
// job comes from the principals whose account is within a turn of the lowest. Among those it is the
// one with the earliest deadline, then the one that came first. So while all principals use about
// the same, the order is earliest deadline first; a principal that uses much more falls behind.
// (Start-time fair queueing, Goyal, Vin and Cheng 1996, with deadlines inside a turn.)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "server/engine/job.h"

namespace warpcall {

// Resources that waiting jobs take up.
enum class Resource : uint8_t { kRequests, kBytes, kWorkNs };
using Load = std::array<int64_t, 3>;  // indexed by Resource
Load LoadOf(const Job& job);

// Not thread-safe.
class FairQueue {
 public:
  bool empty() const { return load_[0] == 0; }
  const Load& load() const { return load_; }

  // Number of waiting jobs that needed preparation when they came.
  int64_t to_be_prepared() const { return to_be_prepared_; }

  bool HasJobsOf(uint64_t principal) const;

  void Push(std::unique_ptr<Job> job);
  // Returns the next job that `may_run`; null when there is none. Each principal in order offers
  // one job: its first that is not `held_back`, which lets the jobs behind it pass.
  std::unique_ptr<Job> Pop(
      absl::FunctionRef<bool(Job&)> may_run,
      absl::FunctionRef<bool(Job&)> held_back = [](Job&) { return false; });
  // Reports that a popped job took `ns` longer than predicted (negative: shorter). Charges the
  // principal's account with a difference of a turn or more.
  void Correct(uint64_t principal, int64_t ns);
  // Marks each principal whose next job, the first that is not `held_back`, has no staging because
  // `fits` is false for it. Removes and returns the jobs that were pushed `starved_ns_max` before
  // `now_ns` and have stood behind such a job since.
  std::vector<std::unique_ptr<Job>> TakeStarved(int64_t now_ns, int64_t starved_ns_max,
                                                absl::FunctionRef<bool(Job&)> held_back,
                                                absl::FunctionRef<bool(const Job&)> fits);
  // Null when no such job waits.
  std::unique_ptr<Job> Remove(const JobKey& key);

  // True if TakeFromLargest would remove a job for one more of `principal` that takes one place.
  bool MakesRoomFor(uint64_t principal) const;
  // Removes the last job of the principal that holds most of `resource`. Returns null unless that
  // principal holds more than `newcomer`'s principal would hold with `newcomer`.
  std::unique_ptr<Job> TakeFromLargest(Resource resource, const Job& newcomer);

  // Predicted work, in nanoseconds, that is sure to come before `job` if it is pushed now. Leaves
  // out jobs deep in a long queue.
  int64_t WorkAheadOf(const Job& job) const;

  // The time at which the longest-waiting job was submitted. REQUIRES: !empty().
  int64_t OldestSubmittedNs() const;

  // Aborts unless the loads and the order by account are those of the jobs. Looks at every job.
  void CheckInvariants() const;

 private:
  using Order = std::pair<int64_t, uint64_t>;  // deadline, id
  struct Principal {
    double share = 1;  // from its last job
    int64_t account_ns = 0;
    Load load = {};
    absl::btree_map<Order, std::unique_ptr<Job>> jobs;
  };
  using Principals = absl::flat_hash_map<uint64_t, std::unique_ptr<Principal>>;

  void Charge(uint64_t id, Principal* principal, int64_t ns);
  std::unique_ptr<Job> Take(uint64_t id, Principal* principal, const Order& order);
  // Returns the principal that holds most of `resource`; null unless it holds more than `principal`
  // would hold with `more`.
  Principal* FindLarger(Resource resource, uint64_t principal, int64_t more, uint64_t* id) const;
  void ForgetIdle();

  Load load_ = {};
  int64_t to_be_prepared_ = 0;
  Principals principals_;
  // Principals with jobs, by account.
  absl::btree_set<std::pair<int64_t, uint64_t>> by_account_;
  int64_t account_now_ns_ = 0;  // the account of the principal served last: newcomers start here
};

}  // namespace warpcall
