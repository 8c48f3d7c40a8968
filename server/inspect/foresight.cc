#include "server/inspect/foresight.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/check/cases.h"
#include "kernels/common/saturate.h"
#include "proto/common/status_macros.h"
#include "server/inspect/row_timer.h"
#include "server/runtime/plan_site.h"

namespace warpcall::inspect {
namespace {

// Lower bound of all rows' rates, in FLOPs and bytes per nanosecond. A problem that is short even
// at this rate needs no prediction.
constexpr double kSlowestRate = 0.05;
constexpr double kObviousNs = 250e6;
// FLOPs and bytes of the first piece: some milliseconds for the slowest rows, which compute in
// float64.
constexpr double kFirstWork = 4e6;
constexpr double kStep = 8;
// Step to a second piece, if most of the first one's input is shared by all pieces: that piece
// alone does not show the cost of more parts.
constexpr double kSharingStep = 2;
// Shorter launches are fixed costs, or do not use all threads.
constexpr double kTellingNs = 20e6;
constexpr double kShareMax = 0.25;
// Launches of a piece: the first warms up, and more follow while they take little time.
constexpr int kLaunchesMin = 2;
constexpr int kLaunchesMax = 6;
constexpr int64_t kLaunchesNs = 100'000'000;
// Larger pieces are not launched to check a prediction.
constexpr double kDoubtNsMax = 1e9;
constexpr int64_t kElementsMin = 1024;

double Sum(const Work& work) {
  return static_cast<double>(work.flops) + static_cast<double>(work.bytes);
}

// A piece that was timed.
struct Point {
  double share;  // the piece's share of the work
  double ns;
};

// The whole problem's time: by the last piece or, if that is less, by the line through both.
double Extrapolated(const std::optional<Point>& before, const Point& last) {
  const double proportional_ns = last.ns / last.share;
  if (!before.has_value() || last.share <= before->share) return proportional_ns;
  const double slope = std::max(0.0, (last.ns - before->ns) / (last.share - before->share));
  return std::min(proportional_ns, last.ns + slope * (1 - last.share));
}

}  // namespace

Foresight::Foresight(Site site, const Kernel* kernel, const Problem* problem,
                     const Operands* operands)
    : site_(std::move(site)),
      kernel_(*kernel),
      problem_(*problem),
      operands_(*operands),
      whole_work_(Sum(kernel->op->work(*problem))),
      parts_(PartsOf(*kernel->op, *problem)),
      first_work_(kFirstWork) {
  if (parts_ <= 1) return;
  // Fewer parts than there are threads leave some idle.
  const auto parts = static_cast<double>(parts_);
  const double parts_min = std::min<double>(site_.device->multiprocessors, parts * kShareMax);
  first_work_ = std::max(kFirstWork, whole_work_ * std::max(1.0, std::floor(parts_min)) / parts);
}

std::optional<Problem> Foresight::ProblemOf(double work) const {
  const Op& op = *kernel_.op;
  if (parts_ > 1) {
    const auto wanted = std::llround(static_cast<double>(parts_) * work / whole_work_);
    return TakeParts(op, problem_, std::clamp<int64_t>(wanted, 1, parts_));
  }
  if (op.cases == nullptr) return std::nullopt;
  const OpCases cases = op.cases();
  if (cases.sized == nullptr) return std::nullopt;
  for (int64_t elements = kElementsMin;; elements *= 2) {
    std::vector<TensorSpec> specs;
    for (const Dims& dims : cases.sized(elements))
      specs.push_back({problem_.inputs[0].data_type, dims});
    absl::StatusOr<Problem> problem = MakeProblem(op, specs, {});
    if (!problem.ok()) return std::nullopt;
    if (Sum(op.work(*problem)) >= work) return *std::move(problem);
  }
}

absl::StatusOr<const Foresight::Piece*> Foresight::Of(double work) {
  for (const auto& piece : pieces_)
    if (piece->wanted_work == work) return piece.get();
  if (whole_work_ / kSlowestRate <= kObviousNs ||
      (work > first_work_ && work > kShareMax * whole_work_))
    return nullptr;
  std::optional<Problem> problem = ProblemOf(work);
  if (!problem.has_value()) return nullptr;
  auto piece = std::make_unique<Piece>();
  piece->wanted_work = work;
  piece->problem = *std::move(problem);
  const Op& op = *kernel_.op;
  const Work part = op.work(piece->problem);
  const Work whole = op.work(problem_);
  // The smaller share, since either FLOPs or bytes may limit the row.
  const auto share = [](int64_t a, int64_t b) {
    return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 1.0;
  };
  piece->share = std::min(share(part.flops, whole.flops), share(part.bytes, whole.bytes));
  if (piece->share <= 0 || piece->share > 2 * kShareMax) return nullptr;
  if (parts_ > 1) {
    piece->shares = BytesOf(op, piece->problem, OperandRole::kShared) >
                    BytesOf(op, piece->problem, OperandRole::kSplit);
  } else {
    const int64_t bytes = OperandLayout(piece->problem).bytes;
    if (SaturatingAdd(pieces_bytes_, bytes) > OperandLayout(problem_).bytes) return nullptr;
    pieces_bytes_ += bytes;
    ASSIGN_OR_RETURN(piece->sets, OperandSets::Create({.problem = &piece->problem}, *site_.device,
                                                      site_.stream, site_.pool));
  }
  return pieces_.emplace_back(std::move(piece)).get();
}

absl::StatusOr<double> Foresight::Time(const Implementation& row, const Piece& piece) const {
  Buffer workspace;
  const auto allocate = [&](size_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(workspace, site_.stream->AllocateMemory(bytes));
    return workspace.data();
  };
  const Operands& operands = piece.sets.has_value() ? (*piece.sets)[0] : operands_;
  ASSIGN_OR_RETURN(const PlanPtr plan, MakePlanOn({site_.stream, site_.device, &operands, allocate},
                                                  row, piece.problem));
  RETURN_IF_ERROR(allocate(plan->traits().workspace_bytes).status());
  TimeLimit limit(site_.clock);
  limit.Set(site_.deadline_ns);
  const LaunchContext context = {site_.stream->native_handle(), workspace.data(), &limit};
  int64_t best_ns = 0;
  int64_t sum_ns = 0;
  for (int i = 0; i < kLaunchesMin || (i < kLaunchesMax && sum_ns < kLaunchesNs); ++i) {
    RETURN_IF_ERROR(RunPhase(site_.stream, Milestone::kKernelDone,
                             [&] { return plan->Enqueue(operands, context); }));
    const int64_t launch_ns = site_.stream->Times().kernel_ns;
    sum_ns += launch_ns;
    best_ns = i == 0 ? launch_ns : std::min(best_ns, launch_ns);
  }
  return static_cast<double>(best_ns);
}

absl::StatusOr<double> Foresight::Predict(const Implementation& row, double doubted_ns) {
  double predicted_ns = 0;
  std::optional<Point> before;
  for (double work = first_work_;;) {
    const Piece* piece;
    ASSIGN_OR_RETURN(piece, Of(work));
    if (piece == nullptr ||
        !site_.registry->Select(kernel_, row.name, piece->problem, *site_.device).ok())
      return predicted_ns;
    Point point = {piece->share, 0};
    ASSIGN_OR_RETURN(point.ns, Time(row, *piece));
    predicted_ns = Extrapolated(before, point);
    const bool doubted = predicted_ns > doubted_ns;
    if (point.ns >= kTellingNs && !doubted) return predicted_ns;
    if (!doubted || kStep * point.ns <= kDoubtNsMax)
      work *= kStep;
    else if (piece->shares && !before.has_value() && kSharingStep * point.ns <= doubted_ns)
      work *= kSharingStep;
    else
      return predicted_ns;
    before = point;
  }
}

}  // namespace warpcall::inspect
