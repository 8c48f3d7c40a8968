#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/engine/tuning_text.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

// A reader wants to know by how much the first was faster, not all of thirty rows.
constexpr size_t kToldRowsMax = 4;
// Largest relative error of a row whose checked elements are within tolerance, as others were not
// checked. A larger error shows that the row computes another function.
constexpr double kRelativeErrorMax = 0.05;

const Row* RowNamed(const Registry& registry, const Kernel& kernel, const std::string& name) {
  for (const int id : kernel.rows) {
    const Row& row = registry.rows()[static_cast<size_t>(id)];
    if (name == row.implementation.name) return &row;
  }
  return nullptr;
}

TuningStamp ToStamp(const v1::RunStamp& stamp) {
  return {.started_unix_ns = stamp.started_unix_ns(),
          .server_version = stamp.server_version(),
          .driver = stamp.driver(),
          .sm_clock_mhz_min = stamp.sm_clock_mhz_min(),
          .sm_clock_mhz_max = stamp.sm_clock_mhz_max(),
          .throttle_reasons = absl::StrJoin(stamp.throttle_reasons(), ", ")};
}

// A process whose memory was overwritten may report a value that is no time; no file may hold it.
bool IsTime(double ns) { return std::isfinite(ns) && ns > 0; }

// Rows that did not run, or of which nothing was compared, are neither right nor wrong.
void Judge(const v1::BenchmarkResult& result, const Row& row, TunedClass* tuned) {
  if (!result.error().empty() || result.checked_elements() == 0) return;
  // Without error bounds max_error is 0; a relative_error that is not finite then means that a
  // special value is wrong. With bounds, max_error covers special values.
  const bool is_special = result.max_error() == 0 && !std::isfinite(result.relative_error());
  if (!(result.max_error() <= 1) || is_special) {
    const double error = is_special ? std::numeric_limits<double>::infinity() : result.max_error();
    tuned->wrong.push_back({row.id, error, tuned->stamp.server_version});
    return;
  }
  if (!(result.relative_error() <= kRelativeErrorMax) || !IsTime(result.median_ns()) ||
      !IsTime(result.median_low_ns()) || !IsTime(result.median_high_ns()))
    return;
  tuned->right.push_back({.row = row.id,
                          .median_ns = result.median_ns(),
                          .median_low_ns = result.median_low_ns(),
                          .median_high_ns = result.median_high_ns(),
                          .unstable = result.unstable()});
}

std::string TimesOf(const Registry& registry, const TunedClass& tuned) {
  const size_t told = std::min(tuned.right.size(), kToldRowsMax);
  std::vector<std::string> times;
  for (const RightRow& right : absl::MakeConstSpan(tuned.right).first(told))
    times.push_back(absl::StrFormat(
        "%s %.4g us", PinnedName(registry.rows()[static_cast<size_t>(right.row)].implementation),
        right.median_ns / 1e3));
  if (tuned.right.size() > told) times.push_back(absl::StrCat(tuned.right.size() - told, " more"));
  return absl::StrJoin(times, ", ");
}

std::string WhyTuned(const Registry& registry, const TunedClass& tuned) {
  const Op& op = *registry.kernels()[static_cast<size_t>(tuned.kernel)].op;
  return absl::StrCat(
      "tuned: ", TimesOf(registry, tuned), "; measured for ", ToText(op, tuned.problem), " on ",
      tuned.device_model, " at ",
      absl::FormatTime(absl::RFC3339_sec, absl::FromUnixNanos(tuned.stamp.started_unix_ns),
                       absl::UTCTimeZone()),
      tuned.shipped ? ", shipped with the server" : "");
}

// The first that was right and that "auto" runs on a device of that model here: it may have been
// measured where a library was that this machine lacks. `models` are those of the engine's devices.
// Null: none.
const Row* FirstThatRuns(const ExecuteDeps& deps, const TunedClass& tuned,
                         const std::vector<std::string>& models) {
  for (const RightRow& right : tuned.right) {
    const Row& row = deps.registry->rows()[static_cast<size_t>(right.row)];
    for (size_t i = 0; i < models.size(); ++i) {
      const DeviceProperties& device = deps.engine->device(static_cast<int>(i)).properties();
      if (models[i] == tuned.device_model &&
          Registry::CheckServes(row, "auto", tuned.problem, device).ok())
        return &row;
    }
  }
  return nullptr;
}

// A Tune that misses a row stays in force until the next Tune, so every row that would run has to
// be tried first.
absl::Status CheckTried(const ExecuteDeps& deps, const std::string& bytes, Request& request) {
  v1::BenchmarkRequest message;
  RETURN_IF_ERROR(ParseSmall(bytes, &message));
  const DeviceProperties& device = deps.engine->device(request.trace().device).properties();
  for (const int id : request.kernel().rows) {
    const Row& row = deps.registry->rows()[static_cast<size_t>(id)];
    const auto names = [&](const std::string& name) {
      return Registry::Matches(row, WithoutStar(name));
    };
    if (!message.implementations().empty() && !absl::c_any_of(message.implementations(), names))
      continue;
    const absl::Status runs = Registry::CheckRuns(row, request.problem(), device);
    if (absl::IsUnavailable(runs))
      return WithRetryPushback(absl::UnavailableError(absl::StrCat(PinnedName(row.implementation),
                                                                   ": ", runs.message())),
                               kTrialPushbackMs);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ReadTune(const ExecuteDeps& deps, const std::string& bytes,
                                 Request* request) {
  ASSIGN_OR_RETURN(const int64_t operand_bytes, ReadWithVariants(deps, bytes, request));
  const Op& op = *request->kernel().op;
  const TensorSpec& output = request->problem().outputs[0];
  if (op.definition == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", op.name,
                     " has no definition that results could be checked by: rows of it are "
                     "not tuned"));
  if (output.elements() == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("the output, ", ToString(output), ", has 0 elements; tuning takes 1"));
  RETURN_IF_ERROR(CheckTried(deps, bytes, *request));
  return operand_bytes;
}

void LearnFrom(const ExecuteDeps& deps, const TuneSubject& subject, const std::string& response) {
  v1::BenchmarkResponse parsed;
  if (deps.tuning == nullptr || !parsed.ParseFromString(response)) return;
  TunedClass tuned;
  tuned.kernel = subject.kernel;
  tuned.device_model = DeviceModelOf(subject.device);
  tuned.problem = subject.problem;
  tuned.stamp = ToStamp(parsed.stamp());
  const Kernel& kernel = deps.registry->kernels()[static_cast<size_t>(subject.kernel)];
  for (const v1::BenchmarkResult& result : parsed.results())
    if (const Row* row = RowNamed(*deps.registry, kernel, result.launch().variant()))
      Judge(result, *row, &tuned);
  if (!tuned.right.empty() || !tuned.wrong.empty()) deps.tuning->Learn(std::move(tuned));
}

std::string WhyChosen(const Registry& registry, const Row& row, const TunedClass* tuned,
                      absl::string_view requested) {
  if (Registry::Pins(row, requested)) return "named by the request";
  std::string why = tuned == nullptr ? "order of preference" : WhyTuned(registry, *tuned);
  if (requested == FamilyName(row.implementation.family))
    absl::StrAppend(&why, tuned == nullptr ? " of the variants of " : "; the fastest variant of ",
                    requested, ", which is named by the request");
  return why;
}

void AddTuned(const ExecuteDeps& deps, v1::ListKernelsResponse* response) {
  std::vector<std::string> models;
  for (int i = 0; i < deps.engine->device_count(); ++i)
    models.push_back(DeviceModelOf(deps.engine->device(i).properties()));
  std::vector<std::shared_ptr<const TunedClass>> classes = deps.engine->tuning().Classes();
  // Those that were measured first come first.
  absl::c_sort(classes, [](const auto& a, const auto& b) {
    return a->stamp.started_unix_ns < b->stamp.started_unix_ns;
  });
  for (const std::shared_ptr<const TunedClass>& tuned : classes) {
    if (!absl::c_linear_search(models, tuned->device_model)) continue;
    const Kernel& kernel = deps.registry->kernels()[static_cast<size_t>(tuned->kernel)];
    v1::TunedClass* const told = response->mutable_kernels(tuned->kernel)->add_tuned();
    told->set_problem(ToText(*kernel.op, tuned->problem));
    told->set_device_model(tuned->device_model);
    told->set_chosen_because(WhyTuned(*deps.registry, *tuned));
    if (const Row* const row = FirstThatRuns(deps, *tuned, models))
      told->set_implementation(FamilyName(row->implementation.family));
  }
}

}  // namespace warpcall
