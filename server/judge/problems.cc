#include "server/judge/problems.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::judge {
namespace {

// Limits of a problem that is drawn, so that its whole output is checked in a moment.
constexpr int64_t kBytesMax = int64_t{16} << 20;
constexpr int64_t kFlopsMax = int64_t{500'000'000};
// So many tries draw odd sizes for every second problem.
constexpr int kOddTries = kTries / 10;

class Drawer {
 public:
  Drawer(const manifest::KernelManifest& manifest, const DeviceProperties& device, uint64_t seed)
      : manifest_(manifest), device_(device), random_(seed) {}

  absl::StatusOr<std::vector<Problem>> Draw() {
    for (size_t i = 0; i < manifest_.examples.size(); ++i) {
      absl::StatusOr<Problem> example = ProblemOf(manifest_.examples[i]);
      if (!example.ok())
        return absl::InvalidArgumentError(
            absl::StrCat("examples[", i, "]: ", example.status().message()));
      problems_.push_back(*std::move(example));
    }
    const std::vector<std::vector<Dims>> bases = Bases();
    absl::Status last;
    const size_t wanted = std::max<size_t>(kProblems, problems_.size() + kDrawnMin);
    for (int i = 0; i < kTries && problems_.size() < wanted && !bases.empty(); ++i) {
      std::vector<Dims> shapes = Vary(bases[random_() % bases.size()]);
      if (IsToBeOdd() && i < kOddTries) MakeOdd(&shapes);
      // Known ones only where the manifest hardly takes others.
      if (i < kTries / 2 && absl::c_linear_search(bases, shapes)) continue;
      absl::StatusOr<Problem> varied = ProblemOf(shapes);
      if (!varied.ok())
        last = varied.status();
      else if (IsOfUse(*varied))
        problems_.push_back(*std::move(varied));
    }
    if (!problems_.empty()) return std::move(problems_);
    return absl::UnimplementedError(absl::StrCat(
        "none of ", kTries, " problems of ", manifest_.op->name,
        " fits the manifest; give it examples that do. The last one: ", last.message()));
  }

 private:
  // The examples, and the shapes of the op's cases that have the manifest's attributes or none.
  std::vector<std::vector<Dims>> Bases() const {
    std::vector<std::vector<Dims>> bases = manifest_.examples;
    for (const Case& known : manifest_.op->cases().cases)
      if (!known.shapes.empty() && !absl::c_linear_search(bases, known.shapes))
        bases.push_back(known.shapes);
    return bases;
  }

  // Each size becomes another one, wherever it stands: near it, half or twice as large, or a
  // neighbour of a multiple of 8.
  std::vector<Dims> Vary(std::vector<Dims> shapes) {
    std::map<int64_t, int64_t> sizes;
    for (Dims& dims : shapes)
      for (int64_t& dim : dims) {
        const auto [known, is_new] = sizes.emplace(dim, dim);
        if (is_new) known->second = NextTo(dim);
        dim = known->second;
      }
    return shapes;
  }

  // A kernel that leaves out a tail must meet one, in each of its types, unless it takes none. The
  // first drawn problem of each type is to be odd, then every second one.
  bool IsToBeOdd() const {
    const size_t drawn = problems_.size() - manifest_.examples.size();
    return drawn / manifest_.types.size() % 2 == 0;
  }

  static void MakeOdd(std::vector<Dims>* shapes) {
    for (Dims& dims : *shapes)
      for (int64_t& dim : dims) dim |= 1;
  }

  int64_t NextTo(int64_t size) {
    if (size <= 1) return size;
    const auto up_to = [&](int64_t most) {
      return static_cast<int64_t>(random_() % static_cast<uint64_t>(most));
    };
    switch (random_() % 4) {
      case 0:
        return size;
      case 1:
        return std::max<int64_t>(1, size / 2 + up_to(size));
      case 2:
        return std::max<int64_t>(1, size + up_to(3) - 1);
      default:
        return std::max<int64_t>(8, (size / 2 + up_to(size)) / 8 * 8);
    }
  }

  absl::StatusOr<Problem> ProblemOf(const std::vector<Dims>& shapes) const {
    const DataType type = manifest_.types[problems_.size() % manifest_.types.size()];
    std::vector<TensorSpec> inputs;
    for (const Dims& dims : shapes) inputs.push_back({type, dims});
    ASSIGN_OR_RETURN(Problem problem, MakeProblem(*manifest_.op, inputs, AttributesOf(manifest_)));
    RETURN_IF_ERROR(CheckTaken(manifest_, problem, device_));
    return problem;
  }

  bool IsOfUse(const Problem& problem) const {
    const Work work = manifest_.op->work(problem);
    return work.bytes <= kBytesMax && work.flops <= kFlopsMax &&
           problem.outputs[0].elements() > 0 && !absl::c_linear_search(problems_, problem);
  }

  const manifest::KernelManifest& manifest_;
  const DeviceProperties& device_;
  std::mt19937_64 random_;
  std::vector<Problem> problems_;
};

}  // namespace

absl::StatusOr<std::vector<Problem>> DrawProblems(const manifest::KernelManifest& manifest,
                                                  const DeviceProperties& device, uint64_t seed) {
  WARPCALL_CHECK(manifest.op->cases != nullptr, manifest.op->name);
  return Drawer(manifest, device, seed).Draw();
}

}  // namespace warpcall::judge
