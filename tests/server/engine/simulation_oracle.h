// Rules that hold for an engine whatever happens in whatever order. Simulation feeds the events.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/graph/step_graph.h"
#include "server/engine/engine.h"
#include "tests/server/engine/simulation_residents.h"

namespace warpcall::testing {

// One request, as its client and the oracle see it.
struct Request {
  enum class State : uint8_t { kWaits, kHasLane, kEnded, kRefused };

  JobKey key;
  int device = 0;
  bool continues = false;
  bool looks = false;  // its kernel looks at its stop flag
  size_t input_bytes = 0;
  size_t output_bytes = 0;
  int64_t run_ns = 0;  // device time that it takes
  bool is_graph = false;
  const Request* repeats = nullptr;  // an earlier graph
  Problem problem;
  ServiceHistory::Prediction prediction;  // when it is submitted
  // Operands on the device, which take no staging and stand behind those that are sent: the input's
  // name, and the output's memory.
  ResidentsOracle::Name* named = nullptr;
  bool keeps = false;
  ResidentsOracle::Name* stays_in = nullptr;  // `named`, until the request has ended
  std::vector<ResidentUse> uses;
  ResidentsOracle::Content* stays_out = nullptr;
  ResidentContentPtr kept;
  bool HasResidents() const { return stays_in != nullptr || stays_out != nullptr; }
  // Key of the row's preparation, if there is one: the device's restarts and the problem's number.
  std::optional<std::pair<int64_t, int>> to_prepare;
  std::vector<int> slow_plans;  // numbers of their problems
  std::atomic<bool> cancelled{false};
  RequestTrace trace;

  State state = State::kWaits;
  const Job* job = nullptr;  // while it waits or has a lane
  int64_t submitted_ns = 0;
  int64_t taken_ns = 0;
  int64_t begun_ns = 0;
  bool is_unwanted = false;  // when it began
  int64_t predicted_ns = 0;  // set when it is taken, as the next one
  bool may_be_long = false;
  // A lane of the device's own, until that lane has reported that it is done with the request.
  std::optional<LaneKind> lane;
  bool copied = false;
  bool preparing_failed = false;
  bool enqueued = false;       // its plans are made
  size_t launches = 0;         // of its kernels
  size_t tries = 0;            // of a graph's steps, while its plan was made
  bool saw_stop = false;       // its kernel saw the flag
  bool device_failed = false;  // while it ran
  int ends = 0;
  StagingBuffers answer;  // until its client has read it

  size_t kernels() const { return problem.graph == nullptr ? 1 : problem.graph->steps().size(); }
  bool is_complete() const { return launches == kernels(); }
  // A kernel saw its flag, or a graph did before its next step.
  bool is_stopped() const { return saw_stop || (enqueued && !is_complete()); }
  // Stands in each KiB of the result of a kernel.
  uint64_t MarkOf(size_t kernel) const { return key.id | uint64_t{kernel} << 32; }
};

// Causes that end a waiting request.
enum class Ender : uint8_t { kNobody, kSubmit, kCancel, kStarving, kEndAll };

// The rules: one object per schedule. failure() keeps the first violation.
//
// No principal falls behind. The queue keeps an account for each principal: the predicted device
// time of its jobs, charged when they are taken, and corrected when they leave if the measured time
// differs by a turn (1 ms) or more. A principal that begins to wait starts no lower than the
// present if none of its jobs waits: the lowest account of those that wait whenever a job is taken,
// which never goes back. A job may be taken only if its principal's account is at most a turn above
// that of everyone whose next job might have been taken instead.
//
// This implies the promise of start-time fair queueing (Goyal, Vin and Cheng 1996). Let f have a
// job waiting throughout an interval, and let F and G be the accounts of f and g at its start. f's
// account grows by the time given to f, g's by no less than the time given to g. So when a job of g
// is taken though f's next might have been, g has been given at most F - G + 1 ms more than f in
// the interval, without that job. If the interval began with a job of f taken though g's next might
// have been, F - G is 1 ms at most: f lags by two turns and a job, however long both have work.
//
// The oracle derives the accounts from the jobs that it sees, and compares every job that is taken
// with the next job of every other principal.
class Oracle {
 public:
  static constexpr int kDevicesMax = ResidentsOracle::kDevicesMax;
  static constexpr int kPrincipalsMax = ResidentsOracle::kOwnersMax;
  using Requests = std::vector<std::unique_ptr<Request>>;

  // All arguments outlive the oracle. `depth` counts events inside callbacks of the engine; there,
  // other requests may have left the queue without having ended yet.
  Oracle(const EngineOptions* options, const Requests* requests, const int64_t* now_ns,
         const int* depth)
      : options_(*options), requests_(*requests), now_ns_(*now_ns), depth_(*depth) {}

  void Refused() { refusing_ = true; }
  // Devices are closed one after the other; running jobs may get their stop flag.
  void Closing(bool drain_over) {
    refusing_ = closing_ = true;
    drain_over_ |= drain_over;
  }
  void Closed() { closed_ = true; }

  // Queue of a request's device before the request came, without the request.
  struct Before {
    Load all = {};
    Load own = {};                 // the principal's
    int64_t requests_of_most = 0;  // the largest of one principal
    int64_t running_ns = 0;        // time that lanes are still expected to take
    bool refuses = false;
    bool may_refuse = false;
  };
  Before BeforeSubmit(const Request& request) const;
  // The request is about to be submitted.
  void Comes(const Request& request);
  // `job`: a refused job as Submit left it.
  void Submitted(const Request& request, const Before& before, const absl::Status& status,
                 const Job* job);
  // CheckRoomFor returned `room` for a principal.
  void AskedForRoom(uint64_t principal, int devices, const absl::Status& room);
  // A lane, or the thread that brought the job (no `lane`), has the job and its staging.
  void Taken(Request* request, std::optional<LaneKind> lane, const StagingPool& staging);
  // The lane has reported that it is done with the request.
  void Left(Request* request);
  void InputsCopied(const Request& request);
  void Begun(const Request& request, const absl::Status& status);
  // The request's row is about to prepare.
  void Prepares(const Request& request);
  // The request has run, so others with the same preparation need none.
  void Prepared(const Request& request);
  bool IsPrepared(const Request& request) const;
  // The kernel looks at its flag.
  void Looked(const Request& request, bool is_set);
  // EndStarved is about to be called.
  void LooksForStarving(int device, const StagingPool& staging);
  // Called before the request's state changes. `newcomer`: the request that it makes room for.
  void Ended(const Request& request, const absl::Status& status, Ender ender,
             const Request* newcomer);
  // Called between steps: the engine's counts equal the oracle's.
  void Compare(int device, const Engine::Parts& parts);
  // A lane of this kind sleeps, and no lane seeks: no job that may
  // run is left waiting. `watched`: EndStarved was the last step,
  // so a running job that has turned out to be long counts as such.
  void NothingToDo(int device, LaneKind kind, const StagingPool& staging, bool watched);
  void AllOver(int64_t devices_lost, bool every_device_is_lost);

  void Fail(absl::string_view what);
  const std::string& failure() const { return failure_; }

 private:
  // A principal's account on a device, or the device's present: exact except for changes in
  // callbacks, where the oracle does not see which requests still wait.
  struct Account {
    int64_t least_ns = 0;
    int64_t most_ns = 0;

    void Add(int64_t ns) { least_ns += ns, most_ns += ns; }
    void RaiseLeast(int64_t to_ns) { least_ns = std::max(least_ns, to_ns); }
    void RaiseMost(int64_t to_ns) { most_ns = std::max(most_ns, to_ns); }
  };
  struct Books {
    Account present;
    Account of[kPrincipalsMax];
    Account before_push;  // the submitting principal's
  };

  Load Waiting(int device, int64_t principal = -1) const;
  // Time that lanes are still expected to take for their jobs.
  int64_t RunningNs(int device) const;
  // Retry hint if `work_ns` more has to be done first.
  int64_t PushbackMs(int device, int64_t work_ns) const;
  // Message about a full queue with `held` waiting, for a principal that makes room (`own` of them
  // are its own) or finds none (`own` are to come).
  std::string FullText(size_t resource, const Load& held, const Load& own, bool makes_room) const;
  // The message contains `text`, and the hint says when to retry; null: any hint will do.
  void CheckTold(const Request& request, const absl::Status& status, const std::string& text,
                 std::optional<int64_t> pushback_ms);
  size_t Staged(int device, int64_t principal = -1) const;
  // Returns true if the request's principal has a right to the staging that it takes.
  bool MayHave(const Request& request) const;
  // Selects jobs by device, principal and kind of lane (nullopt: every kind).
  struct Of {
    int device;
    uint64_t principal;
    std::optional<LaneKind> lane;
  };
  static bool MayBeLong(const Job& job);
  // Order among the jobs of one principal.
  static std::pair<int64_t, uint64_t> OrderOf(const Request& request);
  LaneKind LaneOf(const Request& waiting) const;
  // Returns true if the request waits for others on the lanes of its kind.
  bool HeldBack(const Request& waiting, bool as_it_turned_out) const;
  // The first job that is not held back; null: none.
  const Request* NextOf(const Of& of, bool as_it_turned_out) const;
  // NextOf, but only a job that finds its staging.
  const Request* NextThatMayRun(const Of& of, const StagingPool& staging,
                                bool as_it_turned_out = true) const;
  // Long jobs leave one lane for short work.
  bool LongOnesWait(int device, bool as_it_turned_out = true) const;
  void CheckTurn(const Request& request, LaneKind lane, const StagingPool& staging);
  // Update the accounts when a job is taken, and when a job does not come to wait after all.
  void Charge(const Request& request);
  void DoesNotWait(const Request& request);
  void CheckRefusal(const Request& request, const Before& before, const absl::Status& status,
                    const Job& job);
  void CheckEndOfWaiting(const Request& request, const absl::Status& status, Ender ender,
                         const Request* newcomer);
  void CheckEndOfRunning(const Request& request, const absl::Status& status);
  void Expect(bool holds, const Request& request, absl::string_view what);

  const EngineOptions& options_;
  const Requests& requests_;
  const int64_t& now_ns_;
  const int& depth_;
  bool refusing_ = false;
  bool closing_ = false;
  bool closed_ = false;
  bool drain_over_ = false;
  std::set<std::pair<int, std::pair<int64_t, int>>> prepared_;  // by device
  bool starves_[kDevicesMax][kPrincipalsMax] = {};              // when EndStarved was last called
  Books books_[kDevicesMax];
  std::string failure_;
};

}  // namespace warpcall::testing
