#include "server/engine/chooser.h"

#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/graph/graph_plan.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/prediction.h"
#include "server/engine/refusal.h"

namespace warpcall {
namespace {

// Steps before one that are compared with it.
constexpr size_t kStepsCompared = 16;

// Measurements of each problem's class; null where there are none.
using Classes = absl::InlinedVector<std::shared_ptr<const TunedClass>, 2>;

absl::Status CheckMeasured(const Row& row, const Classes& classes) {
  for (const std::shared_ptr<const TunedClass>& known : classes) {
    if (known == nullptr) continue;
    for (const WrongRow& wrong : known->wrong)
      if (wrong.row == row.id)
        return absl::UnimplementedError(
            absl::StrCat("its result for problems of this class was measured to be ",
                         wrong.max_error, " times as far off as its tolerance allows; see Tune"));
  }
  return absl::OkStatus();
}

// Joins the devices' refusals into one: denied permission first, then a refusal that passes by
// itself.
absl::Status Join(const std::vector<absl::Status>& reasons) {
  const auto any = [&](const auto& is) { return absl::c_any_of(reasons, is); };
  const std::string message =
      absl::StrJoin(reasons, "; ", [](std::string* text, const absl::Status& reason) {
        absl::StrAppend(text, reason.message());
      });
  if (any(absl::IsPermissionDenied)) return absl::PermissionDeniedError(message);
  if (any([](const absl::Status& reason) { return RetryPushbackMs(reason).has_value(); }))
    return WithRetryPushback(absl::UnavailableError(message), kTrialPushbackMs);
  return any(absl::IsUnavailable) ? absl::UnavailableError(message)
                                  : absl::UnimplementedError(message);
}

}  // namespace

absl::StatusOr<Candidate> Chooser::Next(absl::Span<const Problem> problems) const {
  WARPCALL_CHECK(choices_ != nullptr && !problems.empty());
  const Kernel& kernel = *question_.kernel;
  bool exists = false;
  std::vector<absl::Status> reasons;
  absl::InlinedVector<int, 8> able;  // devices of the first kind that can run it
  absl::InlinedVector<Candidate, 1> candidates;
  for (int i = 0; i < static_cast<int>(choices_->places.size()); ++i) {
    const DeviceProperties& device = Properties(i);
    if (!question_.device.empty() && device.name != question_.device) continue;
    exists = true;
    if (!able.empty() && Properties(able.front()).kind != device.kind) continue;
    absl::StatusOr<Candidate> found = FindOn(i, problems);
    if (!found.ok()) {
      reasons.push_back(std::move(found).status());
      continue;
    }
    able.push_back(i);
    candidates.push_back(*std::move(found));
  }
  if (!exists) return NoSuchDevice();
  if (able.empty()) return Join(reasons);
  if (able.size() == 1) return std::move(candidates.front());
  // Devices of one kind share their rows' history.
  const Candidate& first = candidates.front();
  const int64_t ns =
      first.graph != nullptr
          ? Predict(*choices_->history, *first.graph).ns
          : choices_->history->Predict(first.row->id, kernel.op->work(problems.front())).ns;
  DeviceLoad load = choices_->balancer->Choose(able, ns);
  Candidate& best =
      candidates[static_cast<size_t>(absl::c_find(able, load.device()) - able.begin())];
  best.load = std::move(load);
  return std::move(best);
}

absl::StatusOr<Candidate> Chooser::NextAfter(const Row& row, const absl::Status& refusal,
                                             absl::Span<const Problem> problems) {
  if (choices_ == nullptr || Registry::Pins(row, question_.implementation)) return refusal;
  if (!question_.steps.empty()) return StepsAfter(refusal, problems.front());
  refused_.push_back({&row, refusal});
  absl::StatusOr<Candidate> next = Next(problems);
  if (absl::IsPermissionDenied(next.status())) return refusal;
  return next;
}

absl::Status Chooser::CheckDevice(int index) const {
  const Device& device = *choices_->places[static_cast<size_t>(index)].device;
  const std::string& name = device.properties().name;
  if (question_.may_use_device != nullptr && !question_.may_use_device(name))
    return absl::PermissionDeniedError(absl::StrCat(name, " may not be used"));
  if (device.healthy()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      name, device.lost() ? ": the device was lost" : ": the device is being started again"));
}

absl::StatusOr<Candidate> Chooser::FindOn(int index, absl::Span<const Problem> problems) const {
  RETURN_IF_ERROR(CheckDevice(index));
  if (!question_.steps.empty()) return FindStepsOn(index, problems.front());
  const Registry& registry = *choices_->registry;
  const PlanRefusals& known = *choices_->places[static_cast<size_t>(index)].refusals;
  const DeviceProperties& device = Properties(index);
  Classes classes;
  for (const Problem& problem : problems)
    classes.push_back(choices_->tuning->Find(*question_.kernel, problem, index));
  const Row* denied = nullptr;  // the best of those that the policy denies
  const auto allows = [&](const Row& row) -> absl::Status {
    // An implementation that refused other requests is tried again for a request that names it.
    if (!Registry::Pins(row, question_.implementation))
      for (const Problem& problem : problems) RETURN_IF_ERROR(known.Check(row, problem));
    for (const Refused& refused : refused_)
      if (refused.row == &row) return refused.why;
    RETURN_IF_ERROR(CheckMeasured(row, classes));
    if (question_.may_use == nullptr || question_.may_use(row.implementation))
      return absl::OkStatus();
    if (denied == nullptr) denied = &row;
    return absl::PermissionDeniedError("it may not be used");
  };
  Candidate found;
  found.device = index;
  const bool is_auto = Registry::IsAuto(question_.implementation);
  for (size_t i = 0; classes.front() != nullptr && i < classes.front()->right.size(); ++i) {
    const Row& row = registry.rows()[static_cast<size_t>(classes.front()->right[i].row)];
    const auto serves = [&](const Problem& problem) {
      return Registry::CheckServes(row, question_.implementation, problem, device).ok();
    };
    if (!absl::c_linear_search(question_.kernel->rows, row.id) ||
        !Registry::Matches(row, question_.implementation) || !absl::c_all_of(problems, serves) ||
        !allows(row).ok())
      continue;
    found.row = &row;
    // A pinned name leaves nothing to choose.
    if (!Registry::Pins(row, question_.implementation)) found.tuned = std::move(classes.front());
    if (is_auto) found.why = AutoChoice::kTuned;
    return found;
  }
  const absl::StatusOr<const Row*> row =
      registry.Select(*question_.kernel, {question_.implementation, problems, allows}, device);
  if (!row.ok() && denied != nullptr)
    return absl::PermissionDeniedError(
        absl::StrCat(device.name, ": ", denied->implementation.name, " would run it"));
  if (absl::IsUnavailable(row.status())) return WithRetryPushback(row.status(), kTrialPushbackMs);
  RETURN_IF_ERROR(row.status());
  found.row = *row;
  if (is_auto) found.why = AutoChoice::kOrder;
  return found;
}

absl::StatusOr<Candidate> Chooser::StepsAfter(const absl::Status& refusal,
                                              const Problem& problem) const {
  const std::optional<int> number = StepOf(refusal);
  if (!number.has_value()) return refusal;
  const auto i = static_cast<size_t>(*number);
  if (Registry::Pins(*problem.graph->steps()[i].row, question_.steps[i].implementation))
    return refusal;
  absl::StatusOr<Candidate> next = Next(absl::MakeConstSpan(&problem, 1));
  if (!next.ok()) return absl::IsPermissionDenied(next.status()) ? refusal : next.status();
  // Never the same again.
  if (*next->graph == *problem.graph) return refusal;
  return next;
}

absl::StatusOr<Candidate> Chooser::FindStepsOn(int device, const Problem& problem) const {
  WARPCALL_CHECK(
      problem.graph != nullptr && question_.steps.size() == problem.graph->steps().size(),
      question_.steps.size());
  Candidate found;
  found.device = device;
  const absl::Span<const Step> steps = problem.graph->steps();
  std::vector<const Row*> rows;
  for (size_t i = 0; i < question_.steps.size(); ++i) {
    const StepQuestion& step = question_.steps[i];
    // Layers are often alike, and looking for a row takes longer than all else for a step.
    const size_t first = i - std::min(i, kStepsCompared);
    size_t alike = first;
    while (alike < i && !(question_.steps[alike].kernel == step.kernel &&
                          question_.steps[alike].implementation == step.implementation &&
                          steps[alike].problem == steps[i].problem))
      ++alike;
    if (alike < i) {
      rows.push_back(rows[alike]);
      continue;
    }
    Chooser chooser(choices_, {step.kernel, step.implementation, question_.device,
                               question_.may_use, question_.may_use_device});
    absl::StatusOr<Candidate> row =
        chooser.FindOn(device, absl::MakeConstSpan(&steps[i].problem, 1));
    if (!row.ok()) return WithPrefix(StepLabel(step.name), row.status());
    rows.push_back(row->row);
  }
  for (const int id : question_.kernel->rows) {
    const Row& row = choices_->registry->rows()[static_cast<size_t>(id)];
    if (row.implementation.device_kind == Properties(device).kind) found.row = &row;
  }
  WARPCALL_CHECK(found.row != nullptr, device);
  found.graph = problem.graph->With(rows);
  return found;
}

absl::Status Chooser::NoSuchDevice() const {
  const auto append_name = [](std::string* text, const Choices::Place& place) {
    absl::StrAppend(text, place.device->properties().name);
  };
  return absl::NotFoundError(absl::StrCat(
      "device \"", question_.device,
      "\" does not exist; available: ", absl::StrJoin(choices_->places, ", ", append_name)));
}

}  // namespace warpcall
