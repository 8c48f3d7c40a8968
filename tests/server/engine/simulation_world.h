// The simulated world around an engine: its clients, devices and lanes, and their next steps.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/engine/engine.h"
#include "tests/server/engine/simulation.h"
#include "tests/server/engine/simulation_oracle.h"
#include "tests/server/fake_device.h"

namespace warpcall::testing {

// SplitMix64 (Steele, Lea and Flood, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 .. count - 1.
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(count));
  }
  bool OneIn(int64_t count) { return Below(count) == 0; }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return *(values.begin() + Below(static_cast<int64_t>(values.size())));
  }

 private:
  uint64_t state_;
};

// A tensor has its request's id in each KiB.
constexpr size_t kMarkStep = 1024;

// A device that a test breaks, for good or, like a worker's, until it is mended.
class SimulatedDevice final : public FakeDevice {
 public:
  // Memory of a device that records. No address comes twice, so that the same is found to repeat
  // in every run of a schedule, and what was given back stays known.
  struct Memory {
    struct Piece {
      std::unique_ptr<char[]> data;
      size_t bytes;
      bool is_held = true;
    };
    void* Take(size_t bytes) {
      Piece piece{std::make_unique_for_overwrite<char[]>(bytes + 1), bytes};
      char* const data = piece.data.get();
      pieces.emplace(data, std::move(piece));
      return data;
    }
    void TakeBack(const void* data) { pieces.at(static_cast<const char*>(data)).is_held = false; }
    // Returns true for bytes that begin in a piece and go past it, or whose piece was given back.
    bool IsForeign(const void* data, size_t bytes) const {
      const auto* const at = static_cast<const char*>(data);
      const auto next = pieces.upper_bound(at);
      if (next == pieces.begin()) return false;
      const auto& [begin, piece] = *std::prev(next);
      const char* const end = begin + piece.bytes;
      return at <= end && (!piece.is_held || at + bytes > end);
    }
    std::map<const char*, Piece> pieces;
  };
  struct State {
    Control control;
    Memory memory;
    bool broken = false;
    bool is_lost = false;
    int64_t resident_bytes = 0;
    int64_t restarts = 0;
    Device* device = nullptr;
    std::function<void()> on_lost;
  };
  SimulatedDevice(State* state, std::string name, DeviceKind kind)
      : FakeDevice(&state->control, std::move(name)),
        state_(state),
        properties_(FakeDevice::properties()) {
    properties_.kind = kind;
    state->control.kernels_use_staging = !state->control.records;
    state->control.pools_memory = true;
    state->device = this;
    if (!state->control.records) return;
    state->control.memory = [state](size_t bytes) { return state->memory.Take(bytes); };
    state->control.take_back = [state](void* data) { state->memory.TakeBack(data); };
  }
  const DeviceProperties& properties() const override { return properties_; }
  bool healthy() const override { return !state_->broken; }
  bool lost() const override { return state_->is_lost; }
  int64_t restarts() const override { return state_->restarts; }
  int64_t memory_losses() const override { return state_->restarts + (state_->broken ? 1 : 0); }
  int64_t resident_bytes_max() const override { return int64_t{1} << 30; }
  // Memory that is given back loses its marks.
  absl::StatusOr<Buffer> AllocateResident(size_t bytes) override {
    state_->resident_bytes += static_cast<int64_t>(bytes);
    return Buffer(
        state_->control.records ? state_->memory.Take(bytes) : std::malloc(bytes), bytes,
        [](void* owner, void* data, size_t size) {
          auto* const state = static_cast<State*>(owner);
          volatile char* const memory = static_cast<char*>(data);
          for (size_t at = 0; at < size; at += kMarkStep)
            memory[at] = static_cast<char>(~memory[at]);
          state->control.records ? state->memory.TakeBack(data) : std::free(data);
          state->resident_bytes -= static_cast<int64_t>(size);
        },
        state_);
  }
  void OnLost(std::function<void()> on_lost) override { state_->on_lost = std::move(on_lost); }

 private:
  State* const state_;
  DeviceProperties properties_;
};

// One op with two rows for each kind of device: the first may have a rate, the second prepares.
// Behind them are the rows of graphs, one for each kind.
const Registry& SimulatedRows();

// One schedule.
class Simulation {
 public:
  Simulation(uint64_t seed, bool trace) : random_(seed), is_traced_(trace) {}

  Outcome Run();

  // Called by the rows.
  absl::Status Prepare(const Problem& problem);
  void Launch(int row, const Operands& operands, const LaunchContext& context);

 private:
  // A lane between its steps.
  struct SteppedLane {
    enum class Step : uint8_t { kSeek, kBegin, kRun, kEnd, kOver };
    SteppedLane(Lane* stepped, int of, LaneKind is) : lane(stepped), device(of), kind(is) {
      Rest();
    }
    void Rest() {
      idle = std::make_unique<Scheduler::IdleLane>();
      idle->kind = kind;
    }

    const char* Name() const {
      return kind == LaneKind::kPreparing ? "the preparing lane" : "a lane";
    }

    Lane* lane;
    int device;
    LaneKind kind;
    std::unique_ptr<Scheduler::IdleLane> idle;
    Step step = Step::kSeek;
    std::unique_ptr<Job> job = nullptr;
    Request* request = nullptr;
    absl::Status status = absl::OkStatus();
    bool is_stepping = false;
  };
  enum Event {
    kSubmit,
    kCancel,
    kTakeBack,
    kLane,
    kEndStarved,
    kRead,
    kTime,
    kBreak,
    kEnd,
    kAsk,
    kStay
  };
  static constexpr int kEvents = kStay + 1;

  void Create();
  // The rows' launches on this thread are this schedule's.
  void LaunchHere();
  void WarmUp();
  void MakeEvent();
  // Lets others act during a callback.
  void Interleave();

  void Draw(Request* request);
  void DrawToWarmUp(Request* request);
  // A tensor that has not ended, of so many bytes if any are given; null: there is none.
  ResidentsOracle::Name* LiveName(std::optional<int64_t> bytes);
  // Puts tensors that stay in the place of operands. False: the request cannot be, rightly.
  bool DrawResidents(Request* request);
  // The request has ended, or was refused.
  void EndResidents(Request* request, bool ok);
  // Frees a tensor, or looks for those whose time is over.
  Residents::Terms DrawTerms();
  void Put();
  void Stay();
  void Submit();
  std::unique_ptr<Job> MakeJob(Request* request);
  // The request's operands, and its graph if it is one.
  void MakeProblem(Request* request);
  std::shared_ptr<const StepGraph> DrawGraph(const Problem& operands);
  const Row* DrawRow(const Request& request);
  // False: rightly, no device can run it.
  bool Choose(Request* request, Job* job);
  // The job's own, or the sum of its graph's steps.
  ServiceHistory::Prediction Predict(const Job& job) const;
  // Finds the plans that the request's row, or a row of its steps, takes long to make.
  void FindSlowPlans(Request* request, const Row& row);
  // The same for equal problems.
  int NumberOf(const Problem& problem);
  // The next kernel of the request that runs.
  void RunKernel(int row, const Operands& operands);
  void CheckInput(const Request& request, const GraphValue& value, const void* data);
  void Cancel();
  void TakeBack();
  bool CanStep(const SteppedLane& at) const;
  // False when no lane can.
  bool StepALane();
  void StepLane(SteppedLane* at);
  void Seek(SteppedLane* at);
  bool EndStarved(bool only_when_due);
  bool ReadAnAnswer();
  void PassTime();
  void BreakOrMend();
  void Refuse();
  void EndAll();
  void Ask();

  // Until all that was begun has ended.
  void Finish();
  void Compare();

  absl::Status Operation(int device, const char* operation);
  void Ended(Request* request, const absl::Status& status, StagingBuffers outputs);
  // A tensor of so many bytes has the mark of its content.
  void CheckMark(const void* data, size_t bytes, uint64_t mark, const Request& request);
  // Runs `body` with everything that ends in it ended by `ender`.
  void As(Ender ender, const Request* newcomer, const std::function<void()>& body);
  Request* Any(const std::function<bool(const Request&)>& of);

  template <typename... Words>
  void Say(const Words&... words) {
    if (!is_traced_) return;
    absl::StrAppend(&outcome_.trace, absl::StrFormat("%12.6f ms  ", now_ns_ / 1e6),
                    std::string(2 * static_cast<size_t>(depth_), ' '), words..., "\n");
  }

  Random random_;
  const bool is_traced_;
  Outcome outcome_;
  int64_t now_ns_ = 1'000'000'000;
  int depth_ = 0;  // counts events inside callbacks
  EngineOptions options_;
  DeviceKind kind_ = DeviceKind::kCpu;
  int principals_ = 1;
  int64_t longest_run_ns_ = 0;
  bool has_graphs_ = false;
  int weights_[kEvents] = {};
  int weight_ = 0;
  SimulatedDevice::State devices_[Oracle::kDevicesMax];
  int64_t devices_lost_ = 0;
  Oracle::Requests requests_;
  Oracle oracle_{&options_, &requests_, &now_ns_, &depth_};
  std::optional<ResidentsOracle> residents_;  // none: no tensor stays in this schedule
  std::unique_ptr<Engine> engine_;
  std::vector<Engine::Parts> parts_;
  std::vector<SteppedLane> lanes_;
  int64_t starving_looked_ns_[Oracle::kDevicesMax] = {};
  bool ends_starved_[Oracle::kDevicesMax] = {};  // now: one thread does
  int watched_ = -1;                             // the device whose last step was EndStarved
  bool warms_up_ = false;
  bool refuses_ = false;
  bool closed_ = false;
  bool drain_is_over_ = false;
  Ender ender_ = Ender::kNobody;
  const Request* newcomer_ = nullptr;
  Request* running_ = nullptr;  // its kernel may be launched now
  absl::flat_hash_map<Problem, int> problems_;
  // Devices, and problems whose plans are being made; other requests for them wait.
  std::set<std::pair<int, int>> planning_;
};

}  // namespace warpcall::testing
