// Compiling in processes of their own: NVRTC 13.0 dies of a segmentation fault on some of the
// programs that expressions become, for compute capability 9.0, and would take its process along.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/compiled/nvrtc.h"
#include "server/process/answer.h"
#include "server/process/child.h"

namespace warpcall {

// Thread-safe.
class CompileProcesses {
 public:
  // Starts a process that calls ServeCompilations.
  using Start = std::function<absl::StatusOr<std::unique_ptr<process::Child>>()>;

  // `careful` is the option by which a program is compiled again when the compiler died; empty: it
  // is not.
  explicit CompileProcesses(Start start, std::string careful = "")
      : start_(std::move(start)), careful_(std::move(careful)) {}

  // Returns what the process's function returns. Each process compiles one program at a time; there
  // are as many processes as threads ever compiled at once, and they stay. INTERNAL, a
  // CompileError, when the process ends meanwhile, carefully asked as well; RESOURCE_EXHAUSTED when
  // none can be started.
  absl::StatusOr<compiled::CudaCode> Compile(const compiled::CudaSource& source);

 private:
  // UNAVAILABLE when the process ended.
  absl::StatusOr<process::Answer> CompileOnce(const compiled::CudaSource& source);
  // Returns an idle process, or null.
  std::unique_ptr<process::Child> FindIdle();

  const Start start_;
  const std::string careful_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<process::Child>> idle_ ABSL_GUARDED_BY(mutex_);
};

// Answers one request of the processes that compile, whose body is a CudaSource, with the bytes of
// a CudaCode.
absl::StatusOr<std::string> AnswerCompilation(const process::Message& request,
                                              const compiled::CompileFunction& compile);

// Compiles what comes over `channel` until the other end is closed.
absl::Status ServeCompilations(const process::Channel& channel,
                               const compiled::CompileFunction& compile);

// From then on this process compiles in processes of their own.
void CompileInOwnProcesses();

}  // namespace warpcall
