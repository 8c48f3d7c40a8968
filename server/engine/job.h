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
#include "server/engine/staging_pool.h"

namespace warpcall {

class RunWatch;  // server/engine/run_watch.h

// One input's bytes as they came from the network, in order.
using InputPieces = absl::InlinedVector<absl::Span<const char>, 2>;

// Names a job while it waits.
struct JobKey {
  uint64_t principal = 0;  // who it is for: whose turn it is is decided between principals
  int64_t deadline_ns = kNoDeadline;
  uint64_t id = 0;  // unique; breaks ties between deadlines: first come, first served
};

struct Job {
  JobKey key;
  double share = 1;  // of the device's time, that its principal has beside others with 1; over 0
  const Op* op = nullptr;  // of the row; null: the job is never cut
  const Row* row = nullptr;
  Chooser chooser;  // where the row refuses the problem: of others
  int device = 0;   // position in the engine's list
  Problem problem;
  absl::InlinedVector<InputPieces, 2> inputs;  // valid until release_inputs
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int64_t submitted_ns = 0;
  int64_t starved_since_ns = 0;  // it is its principal's next, but there is no staging; 0: no
  StagingBuffers staging;        // for inputs, then outputs: taken before the job reaches a lane
  // What the row finds out about the problem before it runs, here or in a job before; null:
  // nothing.
  std::shared_ptr<Preparation> preparation;
  bool is_prepared() const { return preparation == nullptr || preparation->done.load(); }
  // It was to be prepared, and is not known to take long, when it was let in: set by
  // Scheduler::Submit.
  bool is_to_be_prepared = false;
  // Part of a request of which parts have run: accepted while the server drains.
  bool continues = false;
  // How long a lane is expected to take, and whether that was measured: set by Engine::Submit.
  int64_t predicted_ns = 0;
  bool prediction_measured = false;
  // The same where too little would harm others.
  int64_t predicted_ns_at_most = 0;
  // On the device's books until the job has ended: from Engine::Choose, or else from Submit. Not if
  // it is to be prepared.
  DeviceLoad load;
  // While a lane works on it: what may end it early. Null elsewhere, as in a worker.
  const RunWatch* watch = nullptr;
  // Set by whoever lost interest; outlives the job.
  const std::atomic<bool>* cancelled = nullptr;
  // Outlives `done`; kernel, row and work are filled in.
  RequestTrace* trace = nullptr;

  // Called at most once, when nothing reads `inputs` any more and the work is still to come; gives
  // their memory back early. A job that ends before its inputs were copied leaves them to its
  // owner.
  absl::AnyInvocable<void()> release_inputs;
  // Called exactly once, on a lane's thread or in Engine::Cancel: how it ended and, when OK, one
  // buffer per output. The last thing that touches the job's owner.
  absl::AnyInvocable<void(absl::Status, StagingBuffers)> done;
  // Called after `done`, when the load is off the books: the engine's own count.
  absl::AnyInvocable<void()> ended;
};

// Calls `done`, after which all that the job points to may be gone, and `ended`.
void EndJob(std::unique_ptr<Job> job, absl::Status status, StagingBuffers outputs = {});

// OK while somebody waits for the job: CANCELLED or DEADLINE_EXCEEDED otherwise.
absl::Status CheckStillWanted(const Job& job, int64_t now_ns);

// Whether the client of a call that began at `begin_ns` and is cancelled at `now_ns` left because
// its deadline passed: a client counts its deadline by its own clock, and cancels somewhat before
// the server's clock has reached it.
bool LeftAtDeadline(int64_t begin_ns, int64_t deadline_ns, int64_t now_ns);

}  // namespace warpcall
