#include "kernels/cuda/fastest.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {
namespace {

using Enqueue = absl::FunctionRef<absl::Status(int)>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kScreening(60);
constexpr std::chrono::milliseconds kTotal(100);
constexpr std::chrono::milliseconds kScreeningHard(400);
constexpr int kScreenedMin = 3;

// A single launch between two events on an idle stream also measures how soon the CPU brings the
// launch about: some 5 us (the nop floor of such timings on Hopper, tritonbench issue 38), give or
// take as much.
constexpr double kScreeningErrorMs = 0.005;
constexpr double kScreeningMargin = 1.15;

// In a graph of launches that takes this long the error of its events is small; its nodes
// follow each other within 1.2 us (measured on an H200), which a CPU could not do.
constexpr double kSampleMs = 0.1;
constexpr int kLaunchesMax = 32;
constexpr int kRounds = 5;
// Below this difference the order of the candidates counts for more than the measurement.
constexpr double kWorthIt = 1.0025;

// Times work on a stream by two events around it.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {}
  ~Stopwatch() {
    for (cudaEvent_t event : {begin_, end_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  absl::Status Init() {
    RETURN_IF_ERROR(ToStatus(cudaEventCreate(&begin_), "creating an event"));
    return ToStatus(cudaEventCreate(&end_), "creating an event");
  }

  // Returns the GPU's time for the work that `enqueue` enqueues, in ms.
  absl::StatusOr<double> Measure(absl::FunctionRef<absl::Status()> enqueue) {
    RETURN_IF_ERROR(ToStatus(cudaEventRecord(begin_, stream_), "recording an event"));
    RETURN_IF_ERROR(enqueue());
    RETURN_IF_ERROR(ToStatus(cudaEventRecord(end_, stream_), "recording an event"));
    RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(end_), "waiting for a candidate"));
    float ms = 0;
    RETURN_IF_ERROR(ToStatus(cudaEventElapsedTime(&ms, begin_, end_), "timing a candidate"));
    return ms;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

class GraphOwner {
 public:
  explicit GraphOwner(cudaGraphExec_t graph) : graph_(graph) {}
  GraphOwner(GraphOwner&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  GraphOwner& operator=(GraphOwner&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~GraphOwner() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

struct Candidate {
  int way;
  double screened_ms;
};

struct Finalist {
  int way;
  int launches;  // in the graph
  GraphOwner graph;
  std::vector<double> samples_ms;  // per launch
};

// Runs each way once to load its code, and once to time it.
absl::StatusOr<std::vector<Candidate>> Screen(int count, Enqueue enqueue, Stopwatch* stopwatch) {
  const Clock::time_point start = Clock::now();
  std::vector<Candidate> candidates;
  absl::Status failure;
  for (int way = 0; way < count; ++way) {
    const Clock::duration spent = Clock::now() - start;
    if (!candidates.empty() &&
        (spent > kScreeningHard || (way >= kScreenedMin && spent > kScreening)))
      break;
    const auto enqueue_way = [&] { return enqueue(way); };
    absl::StatusOr<double> ms = stopwatch->Measure(enqueue_way);
    const bool once_is_enough = Clock::now() - start > kScreeningHard;
    if (ms.ok() && !once_is_enough) ms = stopwatch->Measure(enqueue_way);
    if (ms.ok()) {
      candidates.push_back({way, *ms});
      continue;
    }
    if (absl::IsUnavailable(ms.status())) return ms.status();
    failure.Update(ms.status());
  }
  if (candidates.empty()) return failure;
  return candidates;
}

// A graph that launches `way` `launches` times, one after another.
absl::StatusOr<GraphOwner> Repeat(int way, int launches, Enqueue enqueue, cudaStream_t stream) {
  // Only calls of this thread could break the capture: other lanes go on as they like.
  RETURN_IF_ERROR(ToStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                           "beginning to capture"));
  absl::Status status;
  for (int i = 0; i < launches && status.ok(); ++i) status = enqueue(way);
  cudaGraph_t graph = nullptr;
  status.Update(ToStatus(cudaStreamEndCapture(stream, &graph), "capturing"));
  cudaGraphExec_t exec = nullptr;
  if (status.ok()) status = ToStatus(cudaGraphInstantiate(&exec, graph, 0), "making a graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  GraphOwner owner(exec);
  if (status.ok()) status = ToStatus(cudaGraphUpload(exec, stream), "uploading a graph");
  if (!status.ok()) return status;
  return owner;
}

// Returns the candidates that a screening error may have put behind the best.
std::vector<Finalist> TakeFinalists(const std::vector<Candidate>& candidates, Enqueue enqueue,
                                    cudaStream_t stream) {
  double best_ms = candidates.front().screened_ms;
  for (const Candidate& candidate : candidates) best_ms = std::min(best_ms, candidate.screened_ms);
  const double limit_ms = best_ms * kScreeningMargin + kScreeningErrorMs;
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : candidates) {
    if (candidate.screened_ms > limit_ms) continue;
    const double launches = std::ceil(kSampleMs / std::max(candidate.screened_ms, 1e-3));
    const int count = static_cast<int>(std::clamp<double>(launches, 1, kLaunchesMax));
    absl::StatusOr<GraphOwner> graph = Repeat(candidate.way, count, enqueue, stream);
    if (graph.ok()) finalists.push_back({candidate.way, count, *std::move(graph), {}});
  }
  return finalists;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Runs all finalists in each round, so that a change of clocks or a neighbour's kernel hits all.
absl::Status Race(Clock::time_point deadline, cudaStream_t stream, Stopwatch* stopwatch,
                  std::vector<Finalist>* finalists) {
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0 && Clock::now() > deadline) break;
    for (Finalist& finalist : *finalists) {
      ASSIGN_OR_RETURN(const double ms, stopwatch->Measure([&] {
        return ToStatus(cudaGraphLaunch(finalist.graph.get(), stream), "launching a graph");
      }));
      finalist.samples_ms.push_back(ms / finalist.launches);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> FindFastest(int count, cudaStream_t stream, Enqueue enqueue) {
  WARPCALL_DCHECK(count > 0, count);
  const Clock::time_point start = Clock::now();
  Stopwatch stopwatch(stream);
  RETURN_IF_ERROR(stopwatch.Init());
  ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Screen(count, enqueue, &stopwatch));
  if (candidates.size() == 1) return candidates.front().way;
  std::vector<Finalist> finalists = TakeFinalists(candidates, enqueue, stream);
  // A candidate that cannot be captured is judged by the screening alone.
  if (finalists.empty() || Clock::now() - start > kScreeningHard)
    return std::min_element(
               candidates.begin(), candidates.end(),
               [](const auto& a, const auto& b) { return a.screened_ms < b.screened_ms; })
        ->way;
  if (finalists.size() > 1) RETURN_IF_ERROR(Race(start + kTotal, stream, &stopwatch, &finalists));
  int best = finalists.front().way;
  double best_ms = 0;
  for (const Finalist& finalist : finalists) {
    if (finalist.samples_ms.empty()) break;
    const double ms = Median(finalist.samples_ms);
    if (best_ms != 0 && ms * kWorthIt >= best_ms) continue;
    best = finalist.way;
    best_ms = ms;
  }
  return best;
}

}  // namespace warpcall::cuda
