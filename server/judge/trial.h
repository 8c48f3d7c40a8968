// Tries a kernel that nobody vouches for on one problem: whether its output is right for every kind
// of input, whatever lay in its outputs and around its operands, and whether it leaves everything
// else as it was. A kernel runs twice for each kind, at other addresses and over other remains.
//
// Finds mistakes, and the usual short cuts: work left out or done once, results kept by address,
// output that is read before it is written. Code that attacks the process it runs in can still
// deceive its judge.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/check/cases.h"
#include "kernels/check/truth.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "server/engine/finding.h"
#include "server/judge/launch_watch.h"
#include "server/runtime/device.h"

namespace warpcall::judge {

struct TrialKernel {
  const Op* op = nullptr;  // has a definition and cases
  const Problem* problem = nullptr;
  PlanPtr plan;                // its workspace is the kernel's scratch memory
  PlanPtr ours;                // of an implementation that is right; null: there is none
  bool finite_inputs = false;  // infinities and NaN are not tried
  bool deterministic = true;   // the same bits each time
};

// An element of the output.
struct Mismatch {
  std::vector<int64_t> index;  // by dimension
  double got = 0;
  double expected = 0;
  double bound = 0;  // of |got - expected|
};

struct TrialResult {
  // Elements whose error e, in units of its bound, is above 1; then at most 1 and above 1/2, at
  // most 1/2 and above 1/4, ..., and in the last all smaller ones.
  static constexpr int kBins = 16;

  Finding finding = Finding::kPassed;
  std::string detail;    // a sentence, unless it passed
  std::string fill;      // the kind of inputs that it is about; for PASSED, that of max_error
  double max_error = 0;  // of the bound; infinite where a special value is wrong
  double max_absolute_error = 0;
  double max_relative_error = 0;
  int64_t checked_elements = 0;
  std::optional<Mismatch> first;  // where the output is wrong
  std::array<int64_t, kBins> histogram = {};
};

// Used by the stream's thread.
class Trial {
 public:
  // Beyond so many elements or operations, kSampledSlices slices of the output are compared, chosen
  // once the kernel has run. Then every element is compared with ours, too, on normal inputs, whose
  // bounds are much alike: it may be twice the largest bound of the slices away.
  static constexpr int64_t kElementsMax = int64_t{1} << 22;
  static constexpr int64_t kFlopsMax = int64_t{2'000'000'000};
  static constexpr int64_t kSampledSlices = 64;

  struct Site {
    Device* device = nullptr;
    Stream* stream = nullptr;  // of the device
    cpu::ThreadPool* pool = nullptr;
    uint64_t secret = 0;           // inputs, remains, addresses and slices follow from it
    LaunchWatch* watch = nullptr;  // null: a launch may take as long as it likes
    absl::Duration launch_time_max = absl::InfiniteDuration();
  };

  Trial(const Site& site, TrialKernel kernel);

  // An error is the judge's: no memory, a device that was lost before the kernel ran.
  absl::StatusOr<TrialResult> Run();

 private:
  struct Placement;
  struct Tally;
  enum class Remains : uint8_t { kZero, kNan, kPattern, kOthersOutput };
  struct Kind {
    std::string name;
    std::vector<Fill> quarters;     // one, or one for each quarter of an input
    std::vector<Fill> later_fills;  // as Case::later_fills

    bool operator==(const Kind& other) const {
      return quarters == other.quarters && later_fills == other.later_fills;
    }
  };

  std::vector<Kind> Kinds() const;
  absl::Status Prepare();
  void FillInputs(const Kind& kind);
  void FillQuarters(const TensorSpec& spec, absl::Span<const Fill> quarters, char* data);
  // One launch, judged by all but the values. Its output is in output_.
  absl::Status Launch(const Placement& placement, Remains remains);
  void WriteImage(const Placement& placement, Remains remains);
  void WriteRemains(Remains remains, char* data, size_t bytes);
  void JudgeImage(const Placement& placement);
  void FailOutside(const Placement& placement, size_t at, std::optional<size_t> before,
                   std::optional<size_t> behind);
  void Expect();
  void Compare();
  Tally TallyOf(int64_t begin, int64_t end) const;
  bool IsSampled() const;
  absl::Status CompareWithOurs(const Placement& placement);
  Remains NextRemains();
  void Move();
  Placement Place() const;
  void Fail(Finding finding, std::string detail);
  bool failed() const { return result_.finding != Finding::kPassed; }
  uint64_t Random() { return random_(); }
  std::vector<int64_t> IndexOf(int64_t element) const;

  const Site site_;
  const TrialKernel kernel_;
  const OpCases cases_;
  std::mt19937_64 random_;
  Buffer memory_;  // the device's
  bool is_guarded_ = false;
  Buffer ours_;  // likewise: our output
  Buffer ours_workspace_;
  Buffer before_;  // images of it on the host
  Buffer after_;
  std::vector<std::vector<char>> inputs_;
  std::vector<char> output_;  // of the last launch
  std::vector<char> first_;   // of the first launch on the same inputs
  std::vector<char> others_;  // a right output of other inputs
  std::vector<Remains> deck_;
  Truth expected_;           // what the definition gives for elements of the output
  std::vector<int64_t> at_;  // their places; empty: all elements, in order
  // Where the last launch's operands lay.
  size_t shift_ = 0;
  size_t last_input_ = 0;    // lies behind the other operands
  bool at_the_end_ = false;  // of guarded memory
  std::string kind_;
  TrialResult result_;
};

}  // namespace warpcall::judge
