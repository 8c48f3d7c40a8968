// The way a row runs one problem on one device: made once, kept, and shared by all its callers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/op.h"

namespace warpcall {

namespace cuda {
class Libraries;  // kernels/cuda/libraries.h
}

// A text of a plan for people to read.
struct SourceFile {
  std::string name;      // "kernels/gelu/gelu_triton.py"
  std::string language;  // "cuda", "triton", "cpp", "ptx", "sass", "expression"
  std::string text;      // UTF-8
};

// The code of a kernel that a plan launches, of several the one that counts.
struct MachineCode {
  std::string entry;        // its name in the code; empty: there is none to show
  absl::string_view image;  // a cubin, which the plan keeps; empty: it is linked into this program
};

class Plan {
 public:
  struct Traits {
    // Memory that each Enqueue gets, aligned like an operand.
    size_t workspace_bytes = 0;
    // The row's variant that the plan runs; 0 for a row without variants.
    int variant = 0;
    // The launch depends on nothing but the addresses of the operands and the workspace, so that a
    // recording may replace it.
    bool may_be_replayed = false;
    // The plan keeps code that was compiled for it: up to a megabyte of host memory, and some
    // device memory.
    bool is_compiled = false;
  };

  explicit Plan(const Traits& traits) : traits_(traits) {}
  virtual ~Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Traits& traits() const { return traits_; }

  // Enqueues on context.stream, never waits for a device, allocates on it or compiles. Thread-safe.
  // The caller keeps the plan until the enqueued work has run.
  virtual absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const = 0;

  // Zeros on the CPU, where there is no grid. The first call queries the device, which must be
  // current. Thread-safe.
  const absl::StatusOr<LaunchShape>& shape() const {
    std::call_once(asked_, [this] { launch_shape_ = AskShape(); });
    return launch_shape_;
  }

  // Returns the plans of a graph's steps, in their order; none for a plan of one row.
  virtual std::vector<std::shared_ptr<const Plan>> Steps() const { return {}; }

  // Returns the plan's sources beside the files of its row, and what they were compiled to.
  virtual std::vector<SourceFile> Sources() const { return {}; }
  // REQUIRES: the plan's device is current.
  virtual MachineCode Code() const { return {}; }

 private:
  virtual absl::StatusOr<LaunchShape> AskShape() const { return LaunchShape(); }

  const Traits traits_;
  mutable std::once_flag asked_;
  mutable absl::StatusOr<LaunchShape> launch_shape_;
};

using PlanPtr = std::shared_ptr<const Plan>;

// Resources with which a row may try candidates while it plans. The outputs may be written.
struct Tryout {
  void* stream = nullptr;  // as LaunchContext's; idle, and may be waited for
  const Operands* operands = nullptr;
  // Memory that stays until the plan is made; other memory at each call.
  absl::FunctionRef<absl::StatusOr<void*>(size_t)> workspace;
};

// Variant number that leaves the choice to the row.
inline constexpr int kRowsChoice = -1;

class PlanCache;  // kernels/plan_cache.h

// The inputs of planning. `device` and `libraries` outlive the plan, the others the call.
struct PlanContext {
  const DeviceProperties* device = nullptr;
  cuda::Libraries* libraries = nullptr;  // on a GPU
  int variant = kRowsChoice;
  // Null: nothing is tried, and the row takes what it expects to be best.
  const Tryout* tryout = nullptr;
  // Null: never set. Once it is set no caller waits for the plan. A row that takes long to plan
  // then gives up with any error, which is not kept.
  const StopFlag* stop = nullptr;
  // Where a graph finds and keeps the plans of its steps. Null: it makes them for itself.
  PlanCache* plans = nullptr;
};

// Returns a `plan` for a row that runs every problem alike: `launch`, with workspace_bytes(problem,
// device) of memory. Null: it needs no workspace.
using LaunchFunction =
    std::function<absl::Status(const Problem&, const Operands&, const LaunchContext&)>;
decltype(Implementation::plan) PlanBy(LaunchFunction launch,
                                      size_t (*workspace_bytes)(const Problem&,
                                                                const DeviceProperties&) = nullptr);

// OK when variant `number` is one of `count`.
absl::Status CheckVariantNumber(int number, int count);

// The variant of a plan: context.variant, if `takes(variant)` is OK, or else what the row has
// chosen.
template <typename Takes>
absl::StatusOr<int> VariantToPlan(const PlanContext& context, int chosen, const Takes& takes) {
  if (context.variant == kRowsChoice) return chosen;
  const absl::Status taken = takes(context.variant);
  if (!taken.ok()) return taken;
  return context.variant;
}

// Returns the plan of a problem without elements.
PlanPtr PlanNothing();

// A plan that calls `enqueue(operands, context)`, which is thread-safe and keeps what it needs.
template <typename Function>
PlanPtr NewPlan(const Plan::Traits& traits, Function enqueue) {
  class CallingPlan final : public Plan {
   public:
    CallingPlan(const Traits& traits, Function enqueue)
        : Plan(traits), enqueue_(std::move(enqueue)) {}
    absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
      return enqueue_(operands, context);
    }

   private:
    const Function enqueue_;
  };
  return std::make_shared<const CallingPlan>(traits, std::move(enqueue));
}

}  // namespace warpcall
