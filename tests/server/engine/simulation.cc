#include "tests/server/engine/simulation.h"

#include <algorithm>
#include <tuple>

#include "tests/server/engine/simulation_world.h"
#include "tests/server/nanoseconds.h"

namespace warpcall::testing {
namespace {

using State = Request::State;

constexpr int kLanesMax = 3;
// Events inside callbacks of events inside callbacks ...
constexpr int kDepthMax = 3;
constexpr int kJobsToMeasure = 4;
// A copy of the engine's: a lane of a device that records keeps so much, if it keeps any, beside
// the memory of graphs.
constexpr size_t kFixedBytes = size_t{1} << 20;
// Longest time without an event: a starving job ends within two seconds and a check, and the job
// behind it within as much again.
constexpr int64_t kEndNsMax = 4'500 * kMillisecond;

}  // namespace

void Simulation::Create() {
  principals_ = 1 + static_cast<int>(random_.Below(Oracle::kPrincipalsMax));
  kind_ = random_.OneIn(2) ? DeviceKind::kCpu : DeviceKind::kCuda;
  options_.lane_spin_ns = random_.Of<int64_t>({0, 50'000});
  options_.lanes_per_gpu = options_.lanes_per_device =
      1 + static_cast<int>(random_.Below(kLanesMax));
  options_.staging_bytes = StagingPool::kGranuleBytes * static_cast<size_t>(2 + random_.Below(14));
  options_.queue.requests_max = 1 + random_.Below(10);
  options_.queue.bytes_max = random_.Of<int64_t>({1 << 13, 1 << 14, 1 << 16, 1 << 20});
  options_.queue.work_ns_max = random_.Of<int64_t>({5, 20, 60'000}) * kMillisecond;
  options_.run_by_caller_ns_max = random_.Of<int64_t>({0, 0, 2}) * kMillisecond;
  options_.run_ns_max = random_.Of<int64_t>({10, 60'000, 60'000}) * kMillisecond;
  options_.clock = [this] { return now_ns_; };
  options_.on_devices_lost = [this] { ++devices_lost_; };
  options_.threads = false;
  options_.graph_bytes_max = random_.Of<size_t>({0, 24 << 10, 200 << 10});
  has_graphs_ = random_.OneIn(6);
  const bool records = kind_ == DeviceKind::kCuda && (has_graphs_ || random_.OneIn(16));
  if (records && random_.OneIn(2)) options_.lanes_per_gpu = options_.lanes_per_device = 1;
  const bool stays = random_.OneIn(4);
  const ResidentsOracle::Limits limits{random_.Of<int64_t>({8 << 10, 24 << 10}),
                                       random_.Of<int64_t>({6 << 10, 64 << 10})};
  options_.resident_bytes_max = limits.device_bytes_max;
  options_.residents.unix_ns = [] { return int64_t{0}; };
  longest_run_ns_ = random_.Of<int64_t>({1, 5, 300}) * kMillisecond;
  // Each schedule has preferences of its own, and leaves some things out.
  for (int event = 0; event < kEvents; ++event)
    weight_ += weights_[event] =
        event == kStay ? 8 * static_cast<int>(stays) : random_.Of<int>({0, 1, 2, 4});
  for (const Event event : {kSubmit, kLane}) weight_ += 4, weights_[event] += 4;
  std::vector<std::unique_ptr<Device>> devices;
  const int count = 1 + static_cast<int>(random_.OneIn(3));
  for (int i = 0; i < count; ++i) {
    devices_[i].control.on_operation = [this, i](const char* operation) {
      return Operation(i, operation);
    };
    devices_[i].control.records = records;
    devices.push_back(
        std::make_unique<SimulatedDevice>(&devices_[i], absl::StrCat("device ", i), kind_));
  }
  engine_ = *Engine::Create(SimulatedRows(), std::move(devices), options_);
  if (stays)
    residents_.emplace(&engine_->residents(), limits, &now_ns_,
                       [this](absl::string_view what) { oracle_.Fail(what); });
  if (random_.OneIn(2))
    for (const int row : {0, 2})
      engine_->SetRate(row, {.fixed_ns = 0, .bytes_per_ns = 1, .flops_per_ns = 1});
  for (int i = 0; i < count; ++i) {
    parts_.push_back(engine_->parts(i));
    for (Lane* const lane : parts_.back().lanes) lanes_.emplace_back(lane, i, LaneKind::kOrdinary);
    lanes_.emplace_back(parts_.back().preparing_lane, i, LaneKind::kPreparing);
  }
  Say(count, " devices of ", options_.lanes_per_device, " lanes and ", options_.staging_bytes,
      " bytes of staging, queues of ", options_.queue.requests_max, " requests, ",
      options_.queue.bytes_max, " bytes, ", options_.queue.work_ns_max, " ns; ", principals_,
      " principals", records ? "; launches are recorded" : "");
}

Outcome Simulation::Run() {
  LaunchHere();
  Create();
  const bool records = devices_[0].control.records;
  if (random_.OneIn(records && !residents_.has_value() ? 2 : 3)) WarmUp();
  const bool is_long = residents_.has_value() || records;
  for (int64_t left = 10 + random_.Below(is_long ? 61 : 31); left > 0 && oracle_.failure().empty();
       --left) {
    MakeEvent();
    Compare();
  }
  if (oracle_.failure().empty()) Finish();
  outcome_.failure = oracle_.failure();
  if (residents_.has_value()) outcome_.evictions = residents_->evictions();
  for (const SimulatedDevice::State& device : devices_) outcome_.replays += device.control.replays;
  if (!outcome_.failure.empty()) {
    // A broken engine cannot be destroyed in good order: leak it.
    for (SteppedLane& at : lanes_) static_cast<void>(at.idle.release());
    static_cast<void>(engine_.release());
    for (auto& request : requests_) static_cast<void>(request.release());
  }
  return std::move(outcome_);
}

// So that the first row's jobs of one size are measured, or a graph is recorded or almost.
void Simulation::WarmUp() {
  warms_up_ = true;
  const int jobs = has_graphs_ ? 1 + static_cast<int>(random_.Below(6)) : kJobsToMeasure;
  for (int i = 0; i < jobs; ++i) {
    Submit();
    while (StepALane()) {
    }
    ReadAnAnswer();
  }
  warms_up_ = false;
}

void Simulation::MakeEvent() {
  ++outcome_.events;
  int64_t drawn = random_.Below(weight_);
  int event = 0;
  while (drawn >= weights_[event]) drawn -= weights_[event++];
  switch (event) {
    case kSubmit:
      return Submit();
    case kCancel:
      return Cancel();
    case kTakeBack:
      return TakeBack();
    case kLane:
      StepALane();
      return;
    case kEndStarved:
      EndStarved(false);
      return;
    case kRead:
      ReadAnAnswer();
      return;
    case kTime:
      return PassTime();
    case kBreak:
      return random_.OneIn(4) ? BreakOrMend() : PassTime();
    case kEnd:
      if (!random_.OneIn(8)) return;
      return refuses_ ? EndAll() : Refuse();
    case kAsk:
      return Ask();
    default:
      return Stay();
  }
}

void Simulation::Interleave() {
  if (warms_up_ || depth_ == kDepthMax || !random_.OneIn(6) || !oracle_.failure().empty()) return;
  ++depth_;
  As(Ender::kNobody, nullptr, [this] { MakeEvent(); });
  --depth_;
}

void Simulation::As(Ender ender, const Request* newcomer, const std::function<void()>& body) {
  const auto outer = std::tuple(ender_, newcomer_, running_);
  ender_ = ender;
  newcomer_ = newcomer;
  body();
  std::tie(ender_, newcomer_, running_) = outer;
}

Request* Simulation::Any(const std::function<bool(const Request&)>& of) {
  Request* chosen = nullptr;
  int64_t seen = 0;
  for (const auto& request : requests_)
    if (of(*request) && random_.OneIn(++seen)) chosen = request.get();
  return chosen;
}

void Simulation::Compare() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    oracle_.Compare(static_cast<int>(i), parts_[i]);
    for (const LaneKind kind : {LaneKind::kOrdinary, LaneKind::kPreparing}) {
      bool sleeps = false;
      bool seeks = false;
      for (const SteppedLane& at : lanes_) {
        if (at.device != static_cast<int>(i) || at.kind != kind ||
            at.step != SteppedLane::Step::kSeek)
          continue;
        (at.idle->sleeps ? sleeps : seeks) = true;
      }
      if (sleeps && !seeks)
        oracle_.NothingToDo(static_cast<int>(i), kind, *parts_[i].staging,
                            watched_ == static_cast<int>(i));
    }
  }
  watched_ = -1;
  if (residents_.has_value()) residents_->Compare(static_cast<int>(parts_.size()));
}

void Simulation::Finish() {
  const bool drains = random_.OneIn(2);
  const bool reads = random_.OneIn(2);
  if (drains && !refuses_) Refuse();
  int64_t left_ns = drains ? random_.Below(3000) * kMillisecond : kEndNsMax;
  if (!drains && !closed_) {
    Say("the engine goes");
    closed_ = refuses_ = true;
    oracle_.Closing(false);
    for (Engine::Parts& parts : parts_) parts.scheduler->Close();
    oracle_.Closed();
  }
  const auto is_over = [](const SteppedLane& at) { return at.step == SteppedLane::Step::kOver; };
  const auto has_ended = [](const auto& request) {
    return !request->lane.has_value() && request->state >= State::kEnded;
  };
  while (oracle_.failure().empty()) {
    ++outcome_.events;
    Compare();
    const bool idle = std::all_of(requests_.begin(), requests_.end(), has_ended);
    if (idle && !closed_) EndAll();
    if (idle && std::all_of(lanes_.begin(), lanes_.end(), is_over)) break;
    if (StepALane() || EndStarved(true) || (reads && ReadAnAnswer())) continue;
    if (drain_is_over_) {
      oracle_.Fail("what the drain has left does not end");
    } else if (left_ns > 0) {
      Say("time passes");
      now_ns_ += Scheduler::kStarvedCheckPeriodNs;
      left_ns -= Scheduler::kStarvedCheckPeriodNs;
    } else if (!closed_) {
      EndAll();
    } else {
      oracle_.Fail("what was accepted does not end");
    }
  }
  if (!oracle_.failure().empty()) return;
  if (!engine_->AwaitIdle(absl::ZeroDuration())) oracle_.Fail("all have ended, and it is not idle");
  bool every_device_is_lost = true;
  for (size_t i = 0; i < parts_.size(); ++i) every_device_is_lost &= devices_[i].is_lost;
  oracle_.AllOver(devices_lost_, every_device_is_lost);
  for (const SimulatedDevice::State& device : devices_) {
    const auto kept = static_cast<size_t>(device.control.memory_used_bytes) % kFixedBytes;
    if (kept > lanes_.size() * options_.graph_bytes_max)
      oracle_.Fail(absl::StrCat(kept, " bytes are kept for graphs"));
  }
  const bool outlive = random_.OneIn(2);
  if (outlive && oracle_.failure().empty()) {
    engine_ = nullptr;
    for (const SimulatedDevice::State& device : devices_)
      if (const int64_t left = device.resident_bytes + device.control.memory_used_bytes; left != 0)
        oracle_.Fail(absl::StrCat(left, " bytes of tensors and graphs outlive the engine"));
  }
  while (ReadAnAnswer()) {
  }
  for (Engine::Parts& parts : parts_)
    if (!outlive && !parts.staging->TryAllocate({parts.staging->total_bytes()}, 0).has_value())
      oracle_.Fail("everything has ended, and staging is not whole");
}

Outcome Simulate(uint64_t seed, bool trace) { return Simulation(seed, trace).Run(); }

}  // namespace warpcall::testing
