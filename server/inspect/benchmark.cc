#include "server/inspect/benchmark.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/status_macros.h"
#include "server/inspect/candidate.h"
#include "server/inspect/conditions_seen.h"
#include "server/inspect/describe.h"
#include "server/inspect/fastest_rows.h"
#include "server/inspect/flops_ceiling.h"
#include "server/inspect/foresight.h"
#include "server/inspect/memory_ceiling.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/ranking.h"
#include "server/inspect/reference.h"
#include "server/inspect/row_timer.h"
#include "server/log/log.h"
#include "server/runtime/plan_site.h"

namespace warpcall::inspect {
namespace {

// A launch longer than this is warm enough after the first one to find its place in the order.
constexpr double kShortLaunchNs = 10e6;
// Length of a slice of measuring, after which the run yields to other work on the machine.
constexpr int64_t kSliceNs = 10'000'000;
// Copies, and likewise reads, get this share of the rows' time, and at least this many samples if
// they are short.
constexpr int64_t kCopyShare = 8;
constexpr int kCopiesPerRound = 2;
constexpr int64_t kCopiesMin = 3;
constexpr int64_t kCopiesWanted = 10;
constexpr int64_t kCopiesNsMax = 100'000'000;
// The number of arithmetic samples, likewise.
constexpr int64_t kFlopsSamplesMin = 3;
constexpr int64_t kFlopsSamplesMax = 20;
// Niceness of the threads that help to fill operands and to compute the reference: below all
// threads that serve requests.
constexpr int kHelpersNice = 19;
// Other work on a machine, and its clock, often stay as they are for some 100 ms. Rows whose
// samples would all fall within that time are measured in blocks, which begin this far apart.
constexpr int64_t kBlockNs = 100'000'000;
// A check and a sample.
constexpr int64_t kLaunchesMin = 2;
// In a settled run: the length of a sample, between which the host took 0.6 ms beside an H200, in
// which the GPU rests; turns of each row; and the rest between turns.
constexpr int64_t kSettledSampleNs = 50'000'000;
constexpr int kSettledTurns = 2;
constexpr int64_t kCoolNs = 1'000'000'000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

absl::Status CheckPlan(const BenchmarkPlan& plan) {
  if (plan.warmup_iterations < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("warmup_iterations is ", plan.warmup_iterations, "; it must be 0 or more"));
  if (plan.iterations < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("iterations is ", plan.iterations, "; it must be 1 or more"));
  return absl::OkStatus();
}

absl::Status TooSlow(double predicted_ns, int64_t row_ns_max) {
  const double needed_ns = static_cast<double>(kLaunchesMin) * predicted_ns;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "skipped: a launch is predicted to take %.3g s, and at least %d launches must fit into %.3g "
      "s; name the implementation and raise timeout_ns (--timeout) to %.3g s or more",
      predicted_ns * 1e-9, kLaunchesMin, static_cast<double>(row_ns_max) * 1e-9,
      1.25 * needed_ns * 1e-9));
}

// One run on a stream of its own.
class Run {
 public:
  Run(const BenchmarkSite& site, const BenchmarkPlan& plan, const BenchmarkLimits& limits)
      : site_(site),
        device_(site.device),
        plan_(plan),
        limits_(limits),
        row_ns_max_(plan.timeout_ns > 0 ? plan.timeout_ns : limits.row_ns_max),
        work_(plan.kernel->op->work(plan.problem)),
        candidates_(plan.rows.size()) {
    for (size_t i = 0; i < candidates_.size(); ++i) Name(plan.rows[i], &candidates_[i]);
    const DeviceProperties& properties = device_->properties();
    response_.set_device(properties.name);
    response_.set_method(plan.settled ? kBenchmarkSettled : kBenchmarkBurst);
    stamp().set_device_description(properties.description);
    stamp().set_seed(plan.seed);
    stamp().set_started_unix_ns(absl::ToUnixNanos(absl::Now()));
  }

  absl::StatusOr<v1::BenchmarkResponse> Respond() {
    ReportProgress();
    RETURN_IF_ERROR(SetUp());
    const Op& op = *plan_.kernel->op;
    if (op.cases != nullptr) cases_ = op.cases();
    const Reference reference(
        {&op, &plan_.problem, &sets_->host(), cases_.has_value() ? &*cases_ : nullptr},
        limits_.reference_ns_max, &pool_);
    reference_ = &reference;
    RETURN_IF_ERROR(ForEach([this](Candidate& candidate) { return Admit(candidate); }));
    ReportProgress();
    RETURN_IF_ERROR(ForEach([this](Candidate& candidate) { return Foresee(candidate); }));
    foresight_.reset();
    if (site_.witness != nullptr)
      RETURN_IF_ERROR(ForEach([this](Candidate& candidate) { return Check(candidate); }));
    ReportProgress();
    RETURN_IF_ERROR(plan_.settled ? MeasureSettled() : MeasureGroups(GroupsOf(candidates_)));
    for (auto* ceiling : {&copies_, &reads_})
      while (*ceiling != nullptr && (*ceiling)->samples() < kCopiesWanted &&
             (*ceiling)->spent_ns() < kCopiesNsMax && !PastDeadline())
        RETURN_IF_ERROR(SampleOnce(ceiling));
    return TakeResponse();
  }

 private:
  v1::RunStamp& stamp() { return *response_.mutable_stamp(); }

  // Fails a row that does not run here.
  void Name(const Row* row, Candidate* candidate) const {
    candidate->row = row;
    SetNames(row->implementation, &candidate->result);
    const absl::Status runs = Registry::CheckRuns(*row, plan_.problem, device_->properties());
    if (!runs.ok()) Fail(*candidate, runs);
  }

  absl::Status SetUp() {
    ASSIGN_OR_RETURN(stream_, device_->CreateStream());
    RETURN_IF_ERROR(stream_->BindThread());
    const DeviceProperties& properties = device_->properties();
    const int64_t set_bytes = OperandLayout(plan_.problem).bytes;
    ASSIGN_OR_RETURN(sets_, OperandSets::Create({.problem = &plan_.problem,
                                                 .seed = plan_.seed,
                                                 .sets = SetsFor(set_bytes, properties)},
                                                properties, stream_.get(), &pool_));
    foresight_.emplace(Foresight::Site{site_.registry, &properties, stream_.get(), &pool_,
                                       plan_.deadline_ns, site_.clock},
                       plan_.kernel, &plan_.problem, &(*sets_)[0]);
    return SetUpCeilings();
  }

  absl::Status SetUpCeilings() {
    const FastestRows::Site site = {site_.registry, &device_->properties(), stream_.get(), &pool_,
                                    site_.clock};
    const DataType type = plan_.problem.inputs[0].data_type;
    takes_power_ = ArithmeticMayBound(work_);
    RETURN_IF_ERROR(Keep(MemoryCeiling::OfCopies(site, work_.bytes), &copies_));
    if (site_.reads != nullptr && ReadsAlmostOnly(plan_.problem))
      RETURN_IF_ERROR(Keep(MemoryCeiling::OfReads(site_.reads, device_->properties(), plan_.problem,
                                                  {stream_.get(), &*sets_, site_.clock}),
                           &reads_));
    // The CPU's multiply-adds cost next to nothing.
    if (!takes_power_ && !(OnCpu() && type == DataType::kFloat32)) return absl::OkStatus();
    const Arithmetic arithmetic = ArithmeticOf(*plan_.kernel->op, plan_.problem);
    return Keep(FlopsCeiling::Create(site, arithmetic, site_.multiply_adds), &flops_);
  }

  template <typename Ceiling>
  absl::Status Keep(absl::StatusOr<std::unique_ptr<Ceiling>> made,
                    std::unique_ptr<Ceiling>* ceiling) {
    if (!made.ok()) return GiveUp(made.status(), ceiling);
    *ceiling = *std::move(made);
    return absl::OkStatus();
  }

  // Drops a failed ceiling; the run goes on if the device is healthy.
  template <typename Ceiling>
  absl::Status GiveUp(const absl::Status& status, std::unique_ptr<Ceiling>* ceiling) {
    stream_->Synchronize().IgnoreError();
    if (!device_->healthy()) return status;
    Log(LogLevel::kWarning,
        std::is_same_v<Ceiling, MemoryCeiling> ? "memory's ceiling not measured"
                                               : "arithmetic's ceiling not measured",
        {{"device", device_->properties().name}, {"error", status.message()}});
    ceiling->reset();
    return absl::OkStatus();
  }

  bool PastDeadline() const { return site_.clock() >= plan_.deadline_ns; }

  bool OnCpu() const { return device_->properties().kind == DeviceKind::kCpu; }

  // Sleeps, but not beyond the deadline.
  void Rest(int64_t ns) const {
    const int64_t rest_ns = std::min(ns, plan_.deadline_ns - site_.clock());
    if (rest_ns > 0) site_.sleep(rest_ns);
  }

  // Calls `step` for every row that is not done. An error fails that row only, unless the device is
  // lost.
  absl::Status ForEach(absl::FunctionRef<absl::Status(Candidate&)> step) {
    for (Candidate& candidate : candidates_) RETURN_IF_ERROR(Do(candidate, step));
    return absl::OkStatus();
  }

  absl::Status Do(Candidate& candidate, absl::FunctionRef<absl::Status(Candidate&)> step) {
    if (candidate.done) return absl::OkStatus();
    const absl::Status status = step(candidate);
    if (status.ok()) return absl::OkStatus();
    stream_->Synchronize().IgnoreError();
    if (!device_->healthy()) return status;
    if (!absl::IsDeadlineExceeded(status))
      Fail(candidate, status);
    else if (PastDeadline())
      Finish(candidate);
    else
      Skip(candidate);
    return absl::OkStatus();
  }

  // A launch that was stopped would have taken longer than it did.
  void Skip(Candidate& candidate) {
    const double took_ns =
        candidate.timer == nullptr ? 0 : static_cast<double>(candidate.timer->spent_ns());
    const double predicted_ns = std::max(candidate.expected_ns, took_ns);
    candidate.result.set_predicted_ns(predicted_ns);
    Fail(candidate, TooSlow(predicted_ns, row_ns_max_));
  }

  // Nothing is timed yet, so the one workspace that all rows share may still grow.
  absl::Status Admit(Candidate& candidate) {
    const Implementation& row = candidate.row->implementation;
    const DeviceProperties& properties = device_->properties();
    const auto workspace = [this](size_t bytes) { return Workspace(bytes); };
    ASSIGN_OR_RETURN(
        candidate.plan,
        MakePlanOn({stream_.get(), &properties, &(*sets_)[0], workspace}, row, plan_.problem));
    return Workspace(candidate.plan->traits().workspace_bytes).status();
  }

  absl::StatusOr<void*> Workspace(size_t bytes) {
    if (bytes > workspace_.bytes()) {
      // The old workspace stays until the new one exists: rows admitted before rely on one.
      ASSIGN_OR_RETURN(Buffer larger, stream_->AllocateMemory(bytes));
      workspace_ = std::move(larger);
    }
    return workspace_.data();
  }

  absl::Status Foresee(Candidate& candidate) {
    if (PastDeadline()) return absl::DeadlineExceededError("no time");
    const Implementation& row = candidate.row->implementation;
    const double launch_ns_max =
        static_cast<double>(row_ns_max_) / static_cast<double>(kLaunchesMin);
    if (!row.slow_to_plan)
      candidate.expected_ns = foresight_->Predict(row, launch_ns_max).value_or(0);
    if (candidate.expected_ns > launch_ns_max) Skip(candidate);
    if (candidate.expected_ns > 0) return absl::OkStatus();
    RETURN_IF_ERROR(Check(candidate));
    if (candidate.timer->launch_ns() < kShortLaunchNs) RETURN_IF_ERROR(WarmUp(candidate));
    candidate.expected_ns = candidate.timer->launch_ns();
    return absl::OkStatus();
  }

  absl::Status Check(Candidate& candidate) {
    if (candidate.timer != nullptr) return absl::OkStatus();
    if (PastDeadline()) return absl::DeadlineExceededError("no time");
    candidate.timer = std::make_unique<RowTimer>(
        candidate.plan, RowTimer::Shared{stream_.get(), &*sets_, site_.clock}, Timing(),
        workspace_.data());
    RETURN_IF_ERROR(sets_->Poison(reference_->ranges()));
    RETURN_IF_ERROR(candidate.timer->First());
    RETURN_IF_ERROR(sets_->ReadOutput(reference_->ranges()));
    const OutputError error =
        reference_->Compare(sets_->host().outputs[0], AllowanceOf(candidate.row->implementation));
    candidate.result.set_relative_error(error.relative);
    candidate.result.set_checked_elements(error.elements);
    candidate.result.set_max_error(error.max);
    ASSIGN_OR_RETURN(const LaunchShape shape, candidate.plan->shape());
    *candidate.result.mutable_launch() = LaunchInfoOf(candidate.row->implementation, work_, shape);
    return absl::OkStatus();
  }

  Allowance AllowanceOf(const Implementation& row) const {
    if (!cases_.has_value()) return {};
    return AllowanceFor(*cases_, row.name, plan_.problem.outputs[0].data_type);
  }

  // With a witness no launch of a sample finds what another one has computed.
  int64_t LaunchesMax() const {
    return site_.witness == nullptr ? TimingPlan().launches_max : sets_->size();
  }

  TimingPlan Timing() const {
    return {.warmup_launches = plan_.warmup_iterations,
            .samples = plan_.iterations,
            .ns_max = row_ns_max_,
            .ns_enough = plan_.timeout_ns > 0 ? row_ns_max_ : limits_.row_ns_enough,
            .max_noise = plan_.max_noise,
            .launches_max = LaunchesMax(),
            .sample_ns = plan_.settled ? kSettledSampleNs : 0,
            .deadline_ns = plan_.deadline_ns};
  }

  absl::Status WarmUp(Candidate& candidate) {
    if (std::exchange(candidate.warm, true) || candidate.timer->done()) return absl::OkStatus();
    return candidate.timer->WarmUp();
  }

  // Measures the short groups, which come first, together: while one rests the others are measured.
  absl::Status MeasureGroups(const std::vector<Group>& groups) {
    const auto first_long = std::find_if(groups.begin(), groups.end(),
                                         [this](const Group& group) { return !IsShort(group); });
    RETURN_IF_ERROR(MeasureInBlocks({groups.begin(), first_long}));
    for (auto group = first_long; group != groups.end(); ++group) {
      RETURN_IF_ERROR(Prepare(*group));
      RETURN_IF_ERROR(TakeSamples(*group));
      Conclude(*group);
    }
    return absl::OkStatus();
  }

  // True if all samples of the group may fall into one state of the machine. False on a GPU, where
  // the clocks are checked instead.
  bool IsShort(const Group& group) const {
    double ns = 0;
    for (const Candidate* candidate : group)
      ns += plan_.iterations * std::max<double>(candidate->expected_ns, kLaunchedSampleNs);
    return OnCpu() && ns < double{kBlocks} * kBlockNs;
  }

  absl::Status MeasureInBlocks(const std::vector<Group>& groups) {
    for (const Group& group : groups) RETURN_IF_ERROR(Prepare(group));
    int64_t next_ns = 0;
    for (int block = 1; block <= kBlocks; ++block) {
      bool wanted = false;
      for (const Group& group : groups) {
        PlanSamples(group, CeilDivide(int64_t{plan_.iterations} * block, kBlocks));
        wanted |= Wants(group);
      }
      if (wanted) Rest(next_ns - site_.clock());
      next_ns = site_.clock() + kBlockNs;
      for (const Group& group : groups) {
        RETURN_IF_ERROR(TakeSamples(group));
        if (block == kBlocks) Conclude(group);
      }
    }
    return absl::OkStatus();
  }

  static void PlanSamples(const Group& group, int64_t samples) {
    for (Candidate* candidate : group)
      if (!candidate->done) candidate->timer->PlanSamples(samples);
  }

  // True if one of the group's rows lacks planned samples.
  static bool Wants(const Group& group) {
    return std::any_of(group.begin(), group.end(), [](const Candidate* candidate) {
      return !candidate->done && !candidate->timer->done();
    });
  }

  absl::Status Prepare(const Group& group) {
    for (Candidate* candidate : group)
      RETURN_IF_ERROR(Do(*candidate, [this](Candidate& row) { return Check(row); }));
    for (Candidate* candidate : group)
      RETURN_IF_ERROR(Do(*candidate, [this](Candidate& row) { return WarmUp(row); }));
    return absl::OkStatus();
  }

  absl::Status TakeSamples(const Group& group) {
    if (!Wants(group)) return absl::OkStatus();
    RETURN_IF_ERROR(AwaitTurn());
    for (size_t round = 0; Wants(group) && !PastDeadline(); ++round) {
      // Changes the order each round, as each row leaves its traces in the caches.
      for (size_t i = 0; i < group.size(); ++i) {
        Candidate& candidate = *group[(i + round) % group.size()];
        if (candidate.done || candidate.timer->done()) continue;
        RETURN_IF_ERROR(Do(candidate, [this](Candidate& row) { return Sample(row); }));
      }
      RETURN_IF_ERROR(SampleCeilings());
    }
    return absl::OkStatus();
  }

  // Rows in order, and then in reverse, so that a drift of the device meets all alike.
  absl::Status MeasureSettled() {
    Group turn;
    for (Candidate& candidate : candidates_) turn.push_back(&candidate);
    RETURN_IF_ERROR(Prepare(turn));
    RETURN_IF_ERROR(SettleFlops());
    for (int i = 0; i < kSettledTurns; ++i) {
      for (Candidate* candidate : turn) {
        if (candidate->done || PastDeadline()) continue;
        RETURN_IF_ERROR(Do(*candidate, [this](Candidate& row) { return TakeTurn(row); }));
        Cool();
        RETURN_IF_ERROR(SampleCeilings());
      }
      std::reverse(turn.begin(), turn.end());
    }
    Conclude(turn);
    return absl::OkStatus();
  }

  absl::Status TakeTurn(Candidate& candidate) {
    if (candidate.load == nullptr)
      candidate.load = std::make_unique<LoadMeter>(site_.conditions, site_.clock);
    LoadMeter& load = *candidate.load;
    RowTimer& timer = *candidate.timer;
    for (load.Begin(); !load.IsSettled() && !PastDeadline(); load.Look(&stamp())) {
      RETURN_IF_ERROR(timer.Sample());
      timer.Drop();
    }
    int64_t launches = 0;
    for (load.BeginTimed(); !load.IsTimed() && !PastDeadline(); load.Look(&stamp())) {
      if (site_.surroundings != nullptr) site_.surroundings->Begin();
      RETURN_IF_ERROR(timer.Sample());
      launches += timer.launches_per_sample();
      if (site_.surroundings != nullptr && site_.surroundings->Disturbed(LastSampleNs(timer)))
        ++candidate.disturbed;
    }
    load.EndTimed(launches);
    return absl::OkStatus();
  }

  // Arithmetic's ceiling, too, is that of a clock that has settled.
  absl::Status SettleFlops() {
    if (flops_ == nullptr || !takes_power_) return absl::OkStatus();
    LoadMeter load(site_.conditions, site_.clock);
    for (load.Begin(); flops_ != nullptr && !load.IsSettled() && !PastDeadline();
         load.Look(&stamp()))
      RETURN_IF_ERROR(SampleOnce(&flops_));
    if (flops_ != nullptr) flops_->Restart();
    for (load.BeginTimed(); flops_ != nullptr && !load.IsTimed() && !PastDeadline();)
      RETURN_IF_ERROR(SampleOnce(&flops_));
    Cool();
    return absl::OkStatus();
  }

  void Cool() {
    Rest(kCoolNs);
    if (site_.conditions == nullptr) return;
    const double watts = site_.conditions->Read().power_watts;
    const double least = stamp().idle_power_watts();
    stamp().set_idle_power_watts(least > 0 ? std::min(least, watts) : watts);
  }

  void Conclude(const Group& group) {
    for (Candidate* candidate : group) Finish(*candidate);
    ReportProgress();
  }

  // On a GPU, rests for as long as the sample took. Processes share a GPU in slices of
  // milliseconds, and a server at work must get as many as the benchmark. Products take so much
  // power that the speed of one would depend on its predecessor.
  absl::Status Sample(Candidate& candidate) {
    if (site_.witness != nullptr) RETURN_IF_ERROR(site_.witness->Before(*candidate.row, &*sets_));
    const int64_t start_ns = site_.clock();
    if (site_.surroundings != nullptr) site_.surroundings->Begin();
    RETURN_IF_ERROR(candidate.timer->Sample());
    Judge(candidate);
    const int64_t took_ns = site_.clock() - start_ns;
    if (site_.witness != nullptr)
      RETURN_IF_ERROR(site_.witness->After(*candidate.row, &*sets_, candidate.timer->sets_used()));
    const bool shares = site_.surroundings != nullptr && site_.surroundings->ServerAtWork();
    if (!OnCpu() && (takes_power_ || shares)) Rest(took_ns);
    if (site_.clock() - slice_start_ns_ >= kSliceNs) RETURN_IF_ERROR(AwaitTurn());
    return absl::OkStatus();
  }

  static int64_t LastSampleNs(const RowTimer& timer) {
    return static_cast<int64_t>(timer.samples_ns().back() *
                                static_cast<double>(timer.launches_per_sample()));
  }

  // Retakes a sample that other work or a slow clock has disturbed.
  void Judge(Candidate& candidate) {
    RowTimer& timer = *candidate.timer;
    const bool disturbed =
        site_.surroundings != nullptr && site_.surroundings->Disturbed(LastSampleNs(timer));
    const bool slow = IsSeenSlow();
    if (!disturbed && !slow) return;
    const bool retaken = timer.Retake();
    if (slow && retaken) stamp().set_samples_dropped(stamp().samples_dropped() + 1);
    if (disturbed && !retaken) ++candidate.disturbed;
  }

  // Reads the device's conditions when it is time. True if they show a clock that is held down.
  bool IsSeenSlow() {
    if (site_.conditions == nullptr || site_.clock() - looked_ns_ < kSliceNs) return false;
    looked_ns_ = site_.clock();
    const DeviceConditions now = site_.conditions->Read();
    AddConditions(now, &stamp());
    return RunsSlowly(now);
  }

  // Rests between slices: a server at work gets as much time as the measuring.
  absl::Status AwaitTurn() {
    const int64_t slice_ns = site_.clock() - slice_start_ns_;
    if (site_.surroundings != nullptr && !site_.surroundings->AwaitQuiet())
      Rest(std::min(slice_ns, kSliceNs));
    slice_start_ns_ = site_.clock();
    return absl::OkStatus();
  }

  // Samples the ceilings between two rounds, until they have had their share of the time.
  absl::Status SampleCeilings() {
    if (flops_ != nullptr && flops_->samples() < kFlopsSamplesMax &&
        (flops_->samples() < kFlopsSamplesMin || flops_->spent_ns() * kCopyShare < RowsNs()))
      RETURN_IF_ERROR(SampleOnce(&flops_));
    for (auto* ceiling : {&copies_, &reads_})
      for (int i = 0; i < kCopiesPerRound && *ceiling != nullptr; ++i) {
        if ((*ceiling)->samples() >= kCopiesMin && (*ceiling)->spent_ns() * kCopyShare >= RowsNs())
          break;
        RETURN_IF_ERROR(SampleOnce(ceiling));
      }
    return absl::OkStatus();
  }

  template <typename Ceiling>
  absl::Status SampleOnce(std::unique_ptr<Ceiling>* ceiling) {
    const absl::Status status = (*ceiling)->Sample();
    return status.ok() ? absl::OkStatus() : GiveUp(status, ceiling);
  }

  int64_t RowsNs() const {
    int64_t sum = 0;
    for (const Candidate& candidate : candidates_)
      if (candidate.timer != nullptr) sum += candidate.timer->spent_ns();
    return sum;
  }

  void Finish(Candidate& candidate) {
    if (!candidate.done) FinishWithSamples(candidate, OnCpu() ? kSpreadMax : kInfinity);
  }

  void ReportProgress() {
    if (site_.tell == nullptr) return;
    v1::BenchmarkResponse news;
    for (Candidate& candidate : candidates_)
      if (candidate.done && !std::exchange(candidate.told, true))
        *news.add_results() = candidate.result;
    SetRates(&news);
    if (news.results_size() > 0) site_.tell(news);
  }

  // Sets the ceilings, as known by now, and the rates that follow from the results' medians.
  void SetRates(v1::BenchmarkResponse* response) const {
    const double copies = copies_ == nullptr ? 0 : copies_->bytes_per_second();
    const double reads = reads_ == nullptr ? 0 : reads_->bytes_per_second();
    const double ceiling = reads > 0 ? reads : copies;
    response->set_ceiling_bytes_per_second(copies);
    response->set_read_ceiling_bytes_per_second(reads);
    response->set_flops_ceiling(flops_ == nullptr ? 0 : flops_->flops_per_second());
    for (v1::BenchmarkResult& result : *response->mutable_results()) {
      const double seconds = result.median_ns() / 1e9;
      if (!(seconds > 0)) continue;
      result.set_bytes_per_second(static_cast<double>(work_.bytes) / seconds);
      result.set_flops_per_second(static_cast<double>(work_.flops) / seconds);
      if (ceiling > 0) result.set_fraction_of_ceiling(result.bytes_per_second() / ceiling);
    }
  }

  v1::BenchmarkResponse TakeResponse() {
    for (Candidate& candidate : candidates_) *response_.add_results() = std::move(candidate.result);
    SetRates(&response_);
    Rank(response_.mutable_results());
    return std::move(response_);
  }

  const BenchmarkSite& site_;
  Device* const device_;
  const BenchmarkPlan& plan_;
  const BenchmarkLimits& limits_;
  const int64_t row_ns_max_;
  const Work work_;
  // The host's cores, for inputs and the reference; idle while rows are timed.
  cpu::ThreadPool pool_{std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
                        kHelpersNice};
  std::unique_ptr<Stream> stream_;
  // The members below are destroyed before the stream.
  std::optional<OperandSets> sets_;
  std::optional<Foresight> foresight_;
  std::unique_ptr<MemoryCeiling> copies_;
  std::unique_ptr<MemoryCeiling> reads_;  // null: copies are the ceiling
  std::unique_ptr<FlopsCeiling> flops_;
  Buffer workspace_;
  std::optional<OpCases> cases_;
  const Reference* reference_ = nullptr;  // set while Report runs
  std::vector<Candidate> candidates_;
  int64_t slice_start_ns_ = 0;
  int64_t looked_ns_ = 0;
  bool takes_power_ = false;
  v1::BenchmarkResponse response_;
};

}  // namespace

absl::StatusOr<v1::BenchmarkResponse> RunBenchmark(const BenchmarkSite& site,
                                                   const BenchmarkPlan& plan,
                                                   const BenchmarkLimits& limits) {
  RETURN_IF_ERROR(CheckPlan(plan));
  return Run(site, plan, limits).Respond();
}

int64_t BenchmarkBytes(const Problem& problem) {
  const int64_t set_bytes = OperandLayout(problem).bytes;
  return std::max(set_bytes, std::min(kSetsBytesMax, SaturatingMultiply(set_bytes, kSetsMax)));
}

}  // namespace warpcall::inspect
