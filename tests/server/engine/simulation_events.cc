// The events that may happen, one function each, and the calls that the engine makes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "tests/server/engine/simulation_world.h"

namespace warpcall::testing {
namespace {

using State = Request::State;

constexpr int64_t kMillisecond = 1'000'000;
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
  const auto bytes = [this] {
    return static_cast<size_t>(1024 * random_.Below(random_.Of({4, 13})));
  };
  request->input_bytes = bytes();
  request->output_bytes = bytes();
  // Takes the sizes of an earlier request, so that one preparation serves both.
  const Request* const alike =
      random_.OneIn(2) ? Any([](const Request&) { return true; }) : nullptr;
  if (alike == nullptr) return;
  request->input_bytes = alike->input_bytes;
  request->output_bytes = alike->output_bytes;
}

void Simulation::Submit() {
  auto owned = std::make_unique<Request>();
  Request* const request = owned.get();
  request->key.id = requests_.size() + 1;
  request->submitted_ns = now_ns_;
  request->run_ns = random_.Below(longest_run_ns_);
  if (!warms_up_) Draw(request);
  if (!warms_up_ && residents_.has_value() && random_.OneIn(2) && !DrawResidents(request)) return;
  std::unique_ptr<Job> job = MakeJob(request);
  if (!warms_up_ && !request->HasResidents() && random_.OneIn(4)) {
    auto choice = engine_->Choose(SimulatedRows().kernels()[0], "", "", job->problem);
    bool any_works = false;
    for (size_t i = 0; i < parts_.size(); ++i) any_works |= !devices_[i].broken;
    if (choice.ok() != any_works)
      oracle_.Fail(absl::StrCat("Choose: ", choice.status().ToString()));
    if (!choice.ok()) return;
    job->device = request->device = choice->device;
    job->load = std::move(choice->load);
  }
  if (job->row->implementation.slow_to_plan)
    request->to_prepare = {devices_[request->device].restarts, request->input_bytes,
                           request->output_bytes};
  const Oracle::Before before = oracle_.BeforeSubmit(*request);
  oracle_.Comes(*request);
  request->job = job.get();
  requests_.push_back(std::move(owned));
  Say("request ", request->key.id, " of principal ", request->key.principal, " for device ",
      request->device, ": ", request->input_bytes, " bytes in, ", request->output_bytes, " out, ",
      request->trace.work.flops, " flops, ",
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
  std::deque<ResidentsOracle::Name>& names = residents_->names();
  if (!names.empty() && random_.OneIn(2)) {
    const int64_t at = random_.Below(static_cast<int64_t>(names.size()));
    ResidentsOracle::Name* const name = &names[static_cast<size_t>(at)];
    if (!random_.OneIn(8)) request->key.principal = name->content->owner;
    Say("principal ", request->key.principal, " names tensor ", at);
    if (!residents_->Use(name, request->key.principal, &request->uses)) return false;
    request->stays_in = name;
    request->device = name->content->device;
    request->input_bytes = 0;
  }
  // What a callback's job holds is not on the oracle's books any more.
  if (depth_ > 0 || random_.OneIn(2)) return true;
  Say("principal ", request->key.principal, " wants to keep ", request->output_bytes, " bytes");
  request->stays_out =
      residents_->Reserve(request->key.principal, static_cast<int64_t>(request->output_bytes),
                          request->device, &request->kept);
  if (request->stays_out == nullptr) {
    EndResidents(request, false);
    return false;
  }
  request->stays_out->mark = request->key.id;
  request->output_bytes = 0;
  return true;
}

void Simulation::EndResidents(Request* request, bool ok) {
  if (request->stays_in != nullptr) residents_->EndUse(request->stays_in, &request->uses);
  if (request->stays_out != nullptr) {
    const Residents::Terms terms = DrawTerms();
    const int names = ok ? random_.Of<int>({0, 1, 1, 2}) : 0;
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
  const int64_t bytes = 1024 * random_.Below(9);
  const auto device = static_cast<int>(random_.Below(static_cast<int64_t>(parts_.size())));
  if (devices_[device].broken) return;  // which copies nothing
  Say("principal ", owner, " puts ", bytes, " bytes");
  ResidentContentPtr memory;
  ResidentsOracle::Content* const content = residents_->Reserve(owner, bytes, device, &memory);
  if (content == nullptr) return;
  static_cast<void>(memory->Allocate([&](size_t size) -> absl::StatusOr<Buffer> {
    return Buffer(
        std::calloc(1, size), size, [](void*, void* data, size_t) { std::free(data); }, nullptr);
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
  job->row =
      &SimulatedRows()
           .rows()[static_cast<size_t>(random_.Below(2) + (kind_ == DeviceKind::kCuda ? 2 : 0))];
  job->device = request->device;
  const auto floats = [](size_t staged, const ResidentsOracle::Content* content) {
    const int64_t bytes = content == nullptr ? static_cast<int64_t>(staged) : content->bytes;
    return TensorSpec{DataType::kFloat32, {bytes / 4}};
  };
  const ResidentsOracle::Content* const stays_in =
      request->stays_in == nullptr ? nullptr : request->stays_in->content;
  job->problem.inputs = {floats(request->input_bytes, stays_in)};
  job->problem.outputs = {floats(request->output_bytes, request->stays_out)};
  if (request->HasResidents()) job->residents.resize(2);
  if (stays_in != nullptr) job->residents[0].content = request->uses[0].content();
  if (request->stays_out != nullptr) job->residents[1].content = request->kept;
  const auto* const id = reinterpret_cast<const char*>(&request->key.id);
  const size_t mark = std::min(request->input_bytes, sizeof(request->key.id));
  job->inputs.push_back({{id, mark}, {zeros.data(), request->input_bytes - mark}});
  job->input_bytes = static_cast<int64_t>(request->input_bytes);
  job->output_bytes = static_cast<int64_t>(request->output_bytes);
  job->continues = request->continues;
  job->cancelled = &request->cancelled;
  job->trace = &request->trace;
  // A FLOP takes a nanosecond by the rate; 40 000 do by the guess.
  if (warms_up_ || request->HasResidents()) job->row -= job->row->id % 2;
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
  if (outputs.size() != (status.ok() ? 1 : 0))
    oracle_.Fail(absl::StrCat("request ", request->key.id, " has ", outputs.size(), " outputs"));
  request->answer = std::move(outputs);
  EndResidents(request, status.ok());
  // If several make room in turn, the oracle can only tell that the next must do so while no other
  // event comes between.
  if (ender_ != Ender::kSubmit || newcomer_ == request) Interleave();
}

absl::Status Simulation::Prepare() {
  Request* const request = running_;
  oracle_.Prepares(*request);
  if (oracle_.IsPrepared(*request)) return absl::OkStatus();
  Say("  request ", request->key.id, " is prepared");
  now_ns_ += random_.Of<int64_t>({0, kMillisecond, 200 * kMillisecond});
  const auto planned_for =
      std::make_tuple(request->device, request->input_bytes, request->output_bytes);
  planning_.insert(planned_for);
  Interleave();
  planning_.erase(planned_for);
  request->preparing_failed = random_.OneIn(4);
  return request->preparing_failed ? absl::InternalError("it cannot be prepared")
                                   : absl::OkStatus();
}

void Simulation::Launch(const Operands& operands, const LaunchContext& context) {
  Request& request = *running_;
  if (request.launched) oracle_.Fail(absl::StrCat("request ", request.key.id, " runs twice"));
  request.launched = true;
  const size_t mark = std::min(request.input_bytes, sizeof(request.key.id));
  if (std::memcmp(operands.inputs[0], &request.key.id, mark) != 0)
    oracle_.Fail(absl::StrCat("request ", request.key.id, " runs on another's input"));
  if (request.stays_in != nullptr) {
    const ResidentsOracle::Content& content = *request.stays_in->content;
    CheckMark(operands.inputs[0], static_cast<size_t>(content.bytes), content.mark, request);
  }
  const size_t output_bytes = request.stays_out == nullptr
                                  ? request.output_bytes
                                  : static_cast<size_t>(request.stays_out->bytes);
  for (size_t at = 0; at < output_bytes; at += kMarkStep)
    std::memcpy(static_cast<char*>(operands.outputs[0]) + at, &request.key.id,
                sizeof(request.key.id));
  if (request.looks) {
    request.saw_stop = IsSet(context.stop);
    oracle_.Looked(request, request.saw_stop);
  }
}

absl::Status Simulation::Operation(int device, const char* operation) {
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
  const bool waits_for_a_plan =
      at.step == SteppedLane::Step::kRun && at.request->to_prepare.has_value() &&
      planning_.contains({at.device, at.request->input_bytes, at.request->output_bytes});
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
  As(Ender::kNobody, nullptr, [&] { Step(chosen); });
  chosen->is_stepping = false;
  return true;
}

void Simulation::Step(SteppedLane* at) {
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
      if (request->launched && !request->device_failed) oracle_.Prepared(*request);
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
  CheckMark(request->answer[0].data(), request->output_bytes, request->key.id, *request);
  request->answer.clear();
  return true;
}

void Simulation::CheckMark(const void* data, size_t bytes, uint64_t mark, const Request& request) {
  for (size_t at = 0; at < bytes; at += kMarkStep)
    if (std::memcmp(static_cast<const char*>(data) + at, &mark, sizeof(mark)) != 0)
      oracle_.Fail(absl::StrCat("a tensor of request ", request.key.id, " is another's"));
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
    device.plans->Clear();
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
