// Compiles kernels that users push, each in a confined process of its own, which ends afterwards.
//
//   this process                        the process, this program again
//   CompileForeign ── CudaSource ─────► ConfineCompiler, then ServeForeignCompilation
//                  ◄─ CudaCode, error ─ compiles, checks, ends
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/compiled/foreign.h"
#include "kernels/compiled/nvrtc.h"
#include "server/engine/clock.h"
#include "server/process/channel.h"
#include "server/process/child.h"
#include "server/process/role.h"

namespace warpcall {

struct ForeignCompiler {
  std::string cuda_include = {};      // folder of the toolkit's headers; empty: there are none
  int64_t deadline_ns = kNoDeadline;  // by MonotonicNs; the process is killed at this time
  // For tests: starts the process in place of this program's.
  std::function<absl::StatusOr<std::unique_ptr<process::Child>>()> start = nullptr;
};

// Waits for the result. Thread-safe. Errors by the verdict they stand for:
//   COMPILE_ERROR   a CompileError (IsCompileError): the compiler's log, or a sentence where the
//                   source crashed it, calls what it must not, or took more than the limits
//   TIMEOUT         DEADLINE_EXCEEDED: the deadline passed; says how long the compiler took. The
//                   judge decides whose deadline it was
//   NOT_SUPPORTED   UNIMPLEMENTED: no compiler, no headers for the type, or no Landlock here
//   INTERNAL_ERROR  every other code, but INVALID_ARGUMENT for a source over its limit
// Texts are valid UTF-8 without control characters, and have at most 64 KiB, PTX excepted.
absl::StatusOr<compiled::CudaCode> CompileForeign(const compiled::ForeignSource& foreign,
                                                  const ForeignCompiler& compiler);

// ---- In the process, role kCompiler

struct ForeignLimits {
  int64_t address_space_bytes = int64_t{4} << 30;
  int64_t cpu_seconds = 60;
};

// Opens the compiler, then confines this process as Confine does and with its errors. `flags` are
// the process's; limits are those of a foreign source's process. REQUIRES: no thread was started.
absl::Status ConfineCompiler(const process::RoleFlags& flags, const ForeignLimits& limits = {});

// Answers one request. `confined` is ConfineCompiler's status: where it is not OK it is the answer.
// Catches signals: when the source crashes the compiler or reaches a limit, the answer says so and
// the process ends. REQUIRES: the thread is the process's first, and nobody else sends.
absl::Status ServeForeignCompilation(const process::Channel& channel, const absl::Status& confined,
                                     const compiled::CompileFunction& compile,
                                     const ForeignLimits& limits = {});

}  // namespace warpcall
