// A validated request on its way through the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/registry.h"
#include "server/engine/balancer.h"
#include "server/engine/chooser.h"
#include "server/engine/clock.h"
#include "server/engine/metrics_sink.h"
#include "server/engine/preparations.h"
#include "server/engine/residents.h"
#include "server/engine/service_history.h"
#include "server/engine/staging_pool.h"

namespace warpcall {

class RunWatch;  // server/engine/run_watch.h

// One input's bytes as they came from the network, in order.
using InputPieces = absl::InlinedVector<absl::Span<const char>, 2>;

// The place of an operand that lies on the job's device and not in staging.
struct ResidentPlace {
  char* data() const { return content->data() + offset; }
  size_t bytes() const { return content->bytes() - offset; }

  std::shared_ptr<ResidentMemory> content;  // null: the operand is in staging
  size_t offset = 0;
};

// Names a job while it waits.
struct JobKey {
  uint64_t principal = 0;  // whom the job is for; turns are shared out between principals
  int64_t deadline_ns = kNoDeadline;
  uint64_t id = 0;  // unique; breaks ties between deadlines: first come, first served
};

struct Job {
  JobKey key;
  double share = 1;        // its principal's part of the device's time, relative to others' 1; > 0
  const Op* op = nullptr;  // the implementation's op; null: the job is never cut
  const Row* row = nullptr;
  Chooser chooser;  // finds another implementation when `row` refuses the problem
  int device = 0;   // position in the engine's list
  Problem problem;
  absl::InlinedVector<InputPieces, 2> inputs;  // valid until release_inputs
  // By operand, inputs first: those that are on the device already, and outputs that stay there.
  // Empty: none.
  absl::InlinedVector<ResidentPlace, 3> residents;
  bool IsResident(size_t operand) const {
    return !residents.empty() && residents[operand].content != nullptr;
  }
  // By the trace's work.
  TimedWork timed_work() const;
  int64_t input_bytes = 0;   // of inputs that go through staging
  int64_t output_bytes = 0;  // likewise
  int64_t submitted_ns = 0;
  int64_t starved_since_ns = 0;  // when it became its principal's next without staging; 0: not so
  StagingBuffers staging;        // for inputs, then outputs; there before the job reaches a lane
  // The implementation's work on the problem before its first run, such as a search; shared by jobs
  // for the same problem. Null: nothing to prepare.
  std::shared_ptr<Preparation> preparation;
  bool is_prepared() const { return preparation == nullptr || preparation->done.load(); }
  // True if the job needed preparation when it was admitted and is not known to take long. Set by
  // Scheduler::Submit.
  bool is_to_be_prepared = false;
  // Part of a request that has already run parts: accepted while the server drains.
  bool continues = false;
  // Expected lane time, and whether it rests on measurements. Set by Engine::Submit.
  int64_t predicted_ns = 0;
  bool prediction_measured = false;
  // Upper bound of predicted_ns, used where an underestimate would delay other jobs.
  int64_t predicted_ns_at_most = 0;
  // Predicted work on the device's books until the job ends: entered by Chooser::Next, or else by
  // Engine::Submit. Empty for a job that is to be prepared.
  DeviceLoad load;
  // Can end the job early while a lane works on it. Null elsewhere, as in a worker.
  const RunWatch* watch = nullptr;
  // Set by the owner that no longer wants the result; outlives the job.
  const std::atomic<bool>* cancelled = nullptr;
  // Outlives `done`. Has kernel, row and work; the lane changes the row where it takes another.
  RequestTrace* trace = nullptr;

  // Called at most once, when nothing reads `inputs` any more and the work is still to come: the
  // owner can free their memory early. Not called for a job that ends before its inputs were
  // copied; its owner still holds them then.
  absl::AnyInvocable<void()> release_inputs;
  // Called exactly once, on a lane's thread, a timer's, or that of any caller of the engine, with
  // the job's status and, when OK, one buffer per output, which is empty for one that stays on the
  // device. The engine does not touch the job's owner afterwards.
  absl::AnyInvocable<void(absl::Status, StagingBuffers)> done;
  // Called after `done`, when the load is off the books. Lets the engine count its jobs.
  absl::AnyInvocable<void()> ended;
};

// Calls `done`, after which all that the job points to may be gone, and `ended`.
void EndJob(std::unique_ptr<Job> job, absl::Status status, StagingBuffers outputs = {});

// OK while the client still waits for the job; CANCELLED or DEADLINE_EXCEEDED otherwise.
absl::Status CheckStillWanted(const Job& job, int64_t now_ns);

// True if the client of a call that began at `begin_ns` and was cancelled at `now_ns` left because
// its deadline passed. A client measures its deadline by its own clock, and cancels slightly before
// the server's clock reaches it.
bool LeftAtDeadline(int64_t begin_ns, int64_t deadline_ns, int64_t now_ns);

}  // namespace warpcall
