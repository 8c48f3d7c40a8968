// Compiling in other processes: NVRTC 13.0 dies of a segmentation fault on some of the programs
// that expressions become, for compute capability 9.0, and would take its process along.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace warpcall::compiled {

// As Nvrtc::Compile.
using CompileFunction = std::function<absl::StatusOr<std::string>(
    const std::string& source, absl::Span<const std::string> options)>;

// Thread-safe.
class CompileProcesses {
 public:
  // Starts a process that calls ServeCompilations on one end of a stream socket, and returns the
  // other.
  using Start = std::function<absl::StatusOr<int>()>;

  // `careful` is the option by which a compiler that died is asked again; empty: it is not.
  explicit CompileProcesses(Start start, std::string careful = "")
      : start_(std::move(start)), careful_(std::move(careful)) {}
  // Ends those that are idle.
  ~CompileProcesses();
  CompileProcesses(const CompileProcesses&) = delete;
  CompileProcesses& operator=(const CompileProcesses&) = delete;

  // What the process's function returns. One program at a time in each process, of which there are
  // as many as threads ever compiled at once; they stay. INTERNAL, a CompileError, when the process
  // ends meanwhile, carefully asked as well; RESOURCE_EXHAUSTED when none can be started.
  absl::StatusOr<std::string> Compile(const std::string& source,
                                      absl::Span<const std::string> options);

 private:
  // Nothing when the process ended.
  absl::StatusOr<absl::optional<absl::StatusOr<std::string>>> CompileOnce(
      const std::vector<std::string>& question);

  const Start start_;
  const std::string careful_;
  absl::Mutex mutex_;
  std::vector<int> idle_ ABSL_GUARDED_BY(mutex_);  // sockets
};

// Answers on `socket` until the other end is closed.
void ServeCompilations(int socket, const CompileFunction& compile);

// Compilers that are made from then on use `processes`, which stay; before, and with null, they
// compile in their own process. Not thread-safe.
void SetCompileProcesses(CompileProcesses* processes);
CompileProcesses* GetCompileProcesses();

}  // namespace warpcall::compiled
