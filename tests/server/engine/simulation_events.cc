// The events that may happen, one function each, and the calls that the engine makes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "absl/algorithm/container.h"
#include "tests/server/engine/simulation_world.h"
#include "tests/server/nanoseconds.h"

namespace warpcall::testing {
namespace {

using State = Request::State;

constexpr size_t kOperandBytesMax = 12 << 10;

}  // namespace

// Draws a request.
void Simulation::Draw(Request* request) {
  // The first one sends most.
  request->key.principal = static_cast<uint64_t>(random_.OneIn(2) ? 0 : random_.Below(principals_));
  if (random_.OneIn(3))
    request->key.deadline_ns = now_ns_ + random_.Of<int64_t>({0, 1, 8, 50, 3000}) * kMillisecond;
  request->device = static_cast<int>(random_.Below(static_cast<int64_t>(parts_.size())));
  request->continues = random_.OneIn(4);
  request->looks = random_.OneIn(2);
  request->is_graph = has_graphs_ && !random_.OneIn(3);
  const auto bytes = [this] {
    return static_cast<size_t>(1024 * random_.Below(random_.Of({4, 13})));
  };
  request->input_bytes = bytes();
  request->output_bytes = bytes();
  // Takes the sizes of an earlier request, so that one preparation serves both.
  const Request* const alike =
      random_.OneIn(2)
          ? Any([request](const Request& other) { return other.is_graph == request->is_graph; })
          : nullptr;
  if (alike == nullptr) return;
  request->input_bytes = alike->input_bytes;
  request->output_bytes = alike->output_bytes;
  if (!request->is_graph) return;
  const bool is_there =
      alike->named == nullptr || LiveName(alike->named->content->bytes) != nullptr;
  if (is_there || random_.OneIn(4)) request->repeats = alike;
}

ResidentsOracle::Name* Simulation::LiveName(std::optional<int64_t> bytes) {
  ResidentsOracle::Name* chosen = nullptr;
  int64_t seen = 0;
  for (ResidentsOracle::Name& name : residents_->names())
    if (!name.end.has_value() && name.content->bytes == bytes.value_or(name.content->bytes) &&
        random_.OneIn(++seen))
      chosen = &name;
  return chosen;
}

// All are alike, and the only ones.
void Simulation::DrawToWarmUp(Request* request) {
  request->is_graph = has_graphs_;
  if (!request->is_graph) return;
  request->input_bytes = request->output_bytes = 1024;
  if (!requests_.empty()) request->repeats = requests_.back().get();
}

void Simulation::Submit() {
  auto owned = std::make_unique<Request>();
  Request* const request = owned.get();
  request->key.id = requests_.size() + 1;
  request->submitted_ns = now_ns_;
  request->run_ns = random_.Below(longest_run_ns_);
  warms_up_ ? DrawToWarmUp(request) : Draw(request);
  if (!warms_up_ && residents_.has_value() && !DrawResidents(request)) return;
  std::unique_ptr<Job> job = MakeJob(request);
  if (!warms_up_ && !request->HasResidents() && random_.OneIn(4) && !Choose(request, job.get()))
    return;
  FindSlowPlans(request, *job->row);
  request->prediction = Predict(*job);
  const Oracle::Before before = oracle_.BeforeSubmit(*request);
  oracle_.Comes(*request);
  request->job = job.get();
  requests_.push_back(std::move(owned));
  Say("request ", request->key.id, " of principal ", request->key.principal, " for device ",
      request->device, ": ", request->input_bytes, " bytes in, ", request->output_bytes, " out, ",
      request->trace.work.flops, " flops, ", request->is_graph ? "a graph of " : "",
      request->kernels(), " kernels, ",
      request->key.deadline_ns == kNoDeadline ? "no deadline"
                                              : absl::StrCat("deadline ", request->key.deadline_ns),
      request->continues ? ", continues" : "");
  absl::Status status;
  As(Ender::kSubmit, request, [&] { status = engine_->Submit(&job); });
  Say("  request ", request->key.id, ": ", status.ToString());
  oracle_.Submitted(*request, before, status, job.get());
  if (status.ok()) return;
  request->state = State::kRefused;
  request->job = nullptr;
  EndResidents(request, false);
}

bool Simulation::DrawResidents(Request* request) {
  const Request* const repeats = request->repeats;
  if (repeats == nullptr && random_.OneIn(request->is_graph ? 4 : 2)) return true;
  // A kernel has one operand of either sort, a graph may have one more that is sent.
  const bool sends_too = request->is_graph && random_.OneIn(2);
  std::deque<ResidentsOracle::Name>& names = residents_->names();
  ResidentsOracle::Name* name = nullptr;
  if (repeats == nullptr && !names.empty() && (request->is_graph || random_.OneIn(2)))
    name = &names[static_cast<size_t>(random_.Below(static_cast<int64_t>(names.size())))];
  if (repeats != nullptr) name = repeats->named;
  // Sends an input that stayed: the same problem with more to copy.
  if (repeats != nullptr && name != nullptr && request->input_bytes == 0 && random_.OneIn(3)) {
    request->input_bytes = static_cast<size_t>(name->content->bytes);
    name = nullptr;
  }
  // A graph takes one that is there, if there is any.
  if (request->is_graph && name != nullptr) {
    auto* const live =
        LiveName(repeats == nullptr ? std::nullopt : std::optional(name->content->bytes));
    if (live != nullptr) name = live;
  }
  if (name != nullptr) {
    if (!random_.OneIn(8)) request->key.principal = name->content->owner;
    Say("principal ", request->key.principal, " names tensor ", name->number);
    if (!residents_->Use(name, request->key.principal, &request->uses)) return false;
    request->stays_in = request->named = name;
    request->device = name->content->device;
    if (repeats == nullptr && !sends_too) request->input_bytes = 0;
  }
  // What a callback's job holds is not on the oracle's books any more.
  if (depth_ > 0 || (repeats == nullptr ? random_.OneIn(2) : !repeats->keeps)) return true;
  const int64_t bytes = repeats == nullptr
                            ? static_cast<int64_t>(request->output_bytes)
                            : static_cast<int64_t>(repeats->problem.outputs.back().bytes());
  Say("principal ", request->key.principal, " wants to keep ", bytes, " bytes");
  request->stays_out =
      residents_->Reserve(request->key.principal, bytes, request->device, &request->kept);
  if (request->stays_out == nullptr) {
    EndResidents(request, false);
    return false;
  }
  request->keeps = true;
  if (repeats == nullptr && !sends_too) request->output_bytes = 0;
  return true;
}

void Simulation::EndResidents(Request* request, bool ok) {
  if (request->stays_in != nullptr) residents_->EndUse(request->stays_in, &request->uses);
  if (request->stays_out != nullptr) {
    const Residents::Terms terms = DrawTerms();
    const int names = ok ? random_.Of<int>({0, 1, 1, 2}) : 0;
    if (ok)
      CheckMark(request->kept->data(), request->kept->bytes(), request->stays_out->mark, *request);
    Say("  the output of request ", request->key.id, " gets ", names, " names");
    residents_->EndWriting(request->stays_out, &request->kept, names, terms);
  }
  request->stays_in = nullptr;
  request->stays_out = nullptr;
}

Residents::Terms Simulation::DrawTerms() {
  Residents::Terms terms;
  terms.ttl_ns = random_.Of<int64_t>({5, 200, 3000}) * kMillisecond;
  terms.evictable = !random_.OneIn(4);
  return terms;
}

// A tensor comes that no request of the schedule writes.
void Simulation::Put() {
  const auto owner = static_cast<uint64_t>(random_.Below(principals_));
  // Often as large as the last one, so that a graph may repeat with another tensor.
  const std::deque<ResidentsOracle::Name>& names = residents_->names();
  const int64_t bytes =
      names.empty() || random_.OneIn(2) ? 1024 * random_.Below(9) : names.back().content->bytes;
  const auto device = static_cast<int>(random_.Below(static_cast<int64_t>(parts_.size())));
  if (devices_[device].broken) return;  // which copies nothing
  Say("principal ", owner, " puts ", bytes, " bytes");
  ResidentContentPtr memory;
  ResidentsOracle::Content* const content = residents_->Reserve(owner, bytes, device, &memory);
  if (content == nullptr) return;
  static_cast<void>(memory->Allocate([&](size_t size) {
    absl::StatusOr<Buffer> buffer = devices_[device].device->AllocateResident(size);
    std::memset(buffer->data(), 0, size);
    return buffer;
  }));
  residents_->EndWriting(content, &memory, random_.Of<int>({1, 1, 2}), DrawTerms());
}

void Simulation::Stay() {
  if (depth_ == 0 && !random_.OneIn(4)) return Put();
  std::deque<ResidentsOracle::Name>& names = residents_->names();
  if (names.empty() || random_.OneIn(4)) {
    Say("tensors end whose time is over");
    return residents_->EndDue();
  }
  const int64_t at = random_.Below(static_cast<int64_t>(names.size()));
  ResidentsOracle::Name* const name = &names[static_cast<size_t>(at)];
  const uint64_t owner =
      random_.OneIn(8) ? static_cast<uint64_t>(random_.Below(principals_)) : name->content->owner;
  Say("principal ", owner, " frees tensor ", at);
  residents_->Free(name, owner);
}

std::unique_ptr<Job> Simulation::MakeJob(Request* request) {
  static const std::vector<char> zeros(kOperandBytesMax, 0);
  auto job = std::make_unique<Job>();
  job->key = request->key;
  job->device = request->device;
  MakeProblem(request);
  const Problem& problem = job->problem = request->problem;
  job->row = DrawRow(*request);
  const size_t inputs = problem.inputs.size();
  if (request->HasResidents()) job->residents.resize(inputs + problem.outputs.size());
  if (request->stays_in != nullptr) job->residents[inputs - 1].content = request->uses[0].content();
  if (request->stays_out != nullptr) job->residents.back().content = request->kept;
  const auto* const id = reinterpret_cast<const char*>(&request->key.id);
  const size_t mark = std::min(request->input_bytes, sizeof(request->key.id));
  job->inputs.resize(inputs);
  if (!job->IsResident(0))
    job->inputs[0] = {{id, mark}, {zeros.data(), request->input_bytes - mark}};
  job->input_bytes = static_cast<int64_t>(request->input_bytes);
  job->output_bytes = static_cast<int64_t>(request->output_bytes);
  job->continues = request->continues;
  job->cancelled = &request->cancelled;
  job->trace = &request->trace;
  if (request->is_graph) request->trace.graph = std::make_shared<GraphRun>(GraphRun{problem.graph});
  // A FLOP takes a nanosecond by the rate; 40 000 do by the guess.
  const int64_t flops_per_ns = job->row->id % 2 == 1 ? 40'000 : 1;
  request->trace.work.flops =
      flops_per_ns *
      (warms_up_ ? 300'000 : random_.Of<int64_t>({10'000, 300'000, 2'000'000, 40'000'000}));
  job->release_inputs = [this, request] {
    if (request->state == State::kWaits) {
      request->begun_ns = now_ns_;
      Say("  request ", request->key.id, " is carried by its caller");
      oracle_.Taken(request, std::nullopt, *parts_[static_cast<size_t>(request->device)].staging);
      running_ = request;
    }
    oracle_.InputsCopied(*request);
    request->copied = true;
    Interleave();
    // A lane looks again when it runs the job.
    request->device_failed = devices_[request->device].broken;
  };
  job->done = [this, request](absl::Status status, StagingBuffers outputs) {
    Ended(request, status, std::move(outputs));
  };
  return job;
}

void Simulation::Ended(Request* request, const absl::Status& status, StagingBuffers outputs) {
  Say("  request ", request->key.id, " ends: ", status.ToString());
  ++request->ends;
  oracle_.Ended(*request, status, ender_, newcomer_);
  request->state = State::kEnded;
  request->job = nullptr;
  if (outputs.size() != (status.ok() ? request->problem.outputs.size() : 0))
    oracle_.Fail(absl::StrCat("request ", request->key.id, " has ", outputs.size(), " outputs"));
  request->answer = std::move(outputs);
  EndResidents(request, status.ok());
  // If several make room in turn, the oracle can only tell that the next must do so while no other
  // event comes between.
  if (ender_ != Ender::kSubmit || newcomer_ == request) Interleave();
}

absl::Status Simulation::Operation(int device, const char* operation) {
  // "begin", or "replay" of what may have been recorded without a kernel.
  if (operation[0] == 'b' || operation[0] == 'r') running_->enqueued = true;
  if (operation[0] != 's' || running_->device_failed) return absl::OkStatus();
  Request* const request = running_;
  if (!request->saw_stop) now_ns_ += request->run_ns / 2;
  Interleave();
  request->device_failed = devices_[device].broken;
  return request->device_failed ? absl::UnavailableError("the device broke") : absl::OkStatus();
}

void Simulation::Cancel() {
  Request* const request = Any([](const Request& other) {
    return !other.cancelled && (other.state == State::kWaits || other.state == State::kHasLane);
  });
  if (request == nullptr) return;
  Say("the client of request ", request->key.id, " leaves");
  request->cancelled = true;
}

void Simulation::TakeBack() {
  Request* const request = Any([](const Request& other) { return other.cancelled.load(); });
  if (request == nullptr) return;
  Say("request ", request->key.id, " is cancelled");
  const bool waits = depth_ == 0 && request->state == State::kWaits;
  As(Ender::kCancel, nullptr, [&] { engine_->Cancel(request->device, request->key); });
  if (waits && request->state != State::kEnded)
    oracle_.Fail(absl::StrCat("request ", request->key.id, " waits on, though cancelled"));
}

bool Simulation::CanStep(const SteppedLane& at) const {
  const bool waits_for_a_plan = at.step == SteppedLane::Step::kRun &&
                                absl::c_any_of(at.request->slow_plans, [&](int problem) {
                                  return planning_.contains({at.device, problem});
                                });
  return at.step != SteppedLane::Step::kOver && !at.is_stepping && !waits_for_a_plan &&
         (at.step != SteppedLane::Step::kSeek || !at.idle->sleeps);
}

bool Simulation::StepALane() {
  SteppedLane* chosen = nullptr;
  int64_t seen = 0;
  for (SteppedLane& at : lanes_)
    if (CanStep(at) && random_.OneIn(++seen)) chosen = &at;
  if (chosen == nullptr) return false;
  chosen->is_stepping = true;
  As(Ender::kNobody, nullptr, [&] { StepLane(chosen); });
  chosen->is_stepping = false;
  return true;
}

void Simulation::StepLane(SteppedLane* at) {
  Request* const request = at->request;
  switch (at->step) {
    case SteppedLane::Step::kSeek:
      return Seek(at);
    case SteppedLane::Step::kBegin:
      Say("a lane copies request ", request->key.id, " in");
      request->begun_ns = now_ns_;
      request->is_unwanted = request->cancelled || now_ns_ >= request->key.deadline_ns;
      at->status = at->lane->Begin(std::move(at->job));
      oracle_.Begun(*request, at->status);
      at->step = at->status.ok() ? SteppedLane::Step::kRun : SteppedLane::Step::kEnd;
      return;
    case SteppedLane::Step::kRun:
      Say(at->Name(), " runs request ", request->key.id);
      running_ = request;
      request->device_failed = devices_[at->device].broken;
      at->status = at->lane->Run();
      at->step = SteppedLane::Step::kEnd;
      return;
    case SteppedLane::Step::kEnd:
      Say(at->Name(), " ends request ", request->key.id);
      at->lane->End(std::move(at->status));
      if (request->enqueued && !request->device_failed) oracle_.Prepared(*request);
      oracle_.Left(request);
      at->request = nullptr;
      at->step = SteppedLane::Step::kSeek;
      return;
    case SteppedLane::Step::kOver:
      return;
  }
}

void Simulation::Seek(SteppedLane* at) {
  Engine::Parts& parts = parts_[static_cast<size_t>(at->device)];
  Scheduler::Found found = parts.scheduler->TryNext(at->idle.get());
  if (found.job == nullptr) {
    Say(at->kind == LaneKind::kPreparing ? "the preparing lane" : "a lane", " of device ",
        at->device, found.over ? " is over" : " finds nothing");
    if (found.over) at->step = SteppedLane::Step::kOver;
    return;
  }
  at->Rest();
  at->request = requests_[found.job->key.id - 1].get();
  at->job = std::move(found.job);
  at->step = SteppedLane::Step::kBegin;
  Say(at->Name(), " of device ", at->device, " takes request ", at->request->key.id);
  oracle_.Taken(at->request, at->kind, *parts.staging);
}

bool Simulation::EndStarved(bool only_when_due) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (ends_starved_[i] || !parts_[i].scheduler->watches()) continue;
    if (only_when_due && now_ns_ - starving_looked_ns_[i] < Scheduler::kStarvedCheckPeriodNs)
      continue;
    Say("device ", i, " looks for what starves");
    starving_looked_ns_[i] = now_ns_;
    oracle_.LooksForStarving(static_cast<int>(i), *parts_[i].staging);
    ends_starved_[i] = true;
    As(Ender::kStarving, nullptr, [&] { parts_[i].scheduler->EndStarved(); });
    ends_starved_[i] = false;
    if (depth_ == 0) watched_ = static_cast<int>(i);
    return true;
  }
  return false;
}

bool Simulation::ReadAnAnswer() {
  Request* const request = Any([](const Request& other) { return !other.answer.empty(); });
  if (request == nullptr) return false;
  Say("the client of request ", request->key.id, " has read its answer");
  const StepGraph* const graph = request->problem.graph.get();
  const int kernel = graph == nullptr ? 0 : graph->outputs()[0];
  CheckMark(request->answer[0].data(), request->output_bytes,
            request->MarkOf(static_cast<size_t>(kernel)), *request);
  request->answer.clear();
  return true;
}

void Simulation::PassTime() {
  now_ns_ += random_.Of<int64_t>(
      {10'000, kMillisecond, 10 * kMillisecond, 101 * kMillisecond, 2001 * kMillisecond});
  Say("time passes");
}

void Simulation::BreakOrMend() {
  const auto i = static_cast<size_t>(random_.Below(static_cast<int64_t>(parts_.size())));
  SimulatedDevice::State& device = devices_[i];
  if (device.is_lost) return;
  if (device.broken) {
    Say("device ", i, " is back");
    device.on_lost();  // as a worker's does before the next worker serves
    if (residents_.has_value()) residents_->Mends(static_cast<int>(i));
    device.broken = false;
    ++device.restarts;
    device.device->plans().Clear();
    return;
  }
  if (residents_.has_value()) residents_->Breaks(static_cast<int>(i));
  device.broken = true;
  device.is_lost = random_.OneIn(2);
  Say("device ", i, device.is_lost ? " is lost" : " ends, and is started again");
  if (!device.is_lost) return;
  device.on_lost();
  if (residents_.has_value()) residents_->Lost();
}

void Simulation::Refuse() {
  Say("the server drains");
  refuses_ = true;
  oracle_.Refused();
  engine_->BeginDrain();
}

void Simulation::EndAll() {
  Say("the drain is over");
  refuses_ = closed_ = drain_is_over_ = true;
  oracle_.Closing(true);
  int64_t waiting = 0;
  int64_t running = 0;
  for (const auto& request : requests_) {
    waiting += request->state == State::kWaits ? 1 : 0;
    running += request->lane.has_value() ? 1 : 0;
  }
  Engine::Unfinished left;
  const int events = outcome_.events;
  As(Ender::kEndAll, nullptr, [&] { left = engine_->EndAll(); });
  oracle_.Closed();
  if (events == outcome_.events && depth_ == 0 &&
      (left.waiting != waiting || left.running != running))
    oracle_.Fail(absl::StrCat("EndAll found ", left.waiting, " waiting and ", left.running,
                              " running; there were ", waiting, " and ", running));
}

void Simulation::Ask() {
  const auto principal = static_cast<uint64_t>(random_.Below(principals_));
  const absl::Status room = engine_->CheckRoomFor(principal);
  Say("principal ", principal, " asks for room: ", room.ToString());
  oracle_.AskedForRoom(principal, static_cast<int>(parts_.size()), room);
}

}  // namespace warpcall::testing
