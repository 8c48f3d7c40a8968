// The processes that a server starts, by role, and their command line:
//
//   warpcalld inspect-child --device=cuda:0 --method=describe
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "server/engine/clock.h"

namespace warpcall::process {

enum class Role {
  kInspect,   // answers one Benchmark, Tune, Profile or Describe
  kSelfTest,  // tries implementations
  kWorker,    // serves one device to the server
  kCompiler,  // compiles programs
};

// A role's flags. Each role uses some of them.
struct RoleFlags {
  Role role = Role::kInspect;
  std::string device = {};
  bool fault_injection = false;
  std::string compile_cache = {};
  std::string log_level = {};  // Child::Start fills in both
  std::string log_format = {};
  // Inspection flags.
  std::string method = {};  // InspectionName
  std::string traceparent = {};
  bool in_parts = false;
  int64_t deadline_ns = kNoDeadline;               // by MonotonicNs
  int64_t limit_ns = 0;                            // as inspect::Inquiry's
  std::vector<std::string> unavailable_rows = {};  // "ID:REASON", as the server found them
  // Push flags: the longest launch, and what its compiler and its launches need to know of the GPU
  // before that is open. Architecture 0: no GPU takes it.
  int64_t push_run_ns = 0;
  int64_t gpu_architecture = 0;
  int64_t gpu_multiprocessors = 0;
  int64_t gpu_shared_memory = 0;  // bytes, of a block
  std::string gpu_description = {};
  // Self-test flags.
  std::string depth = {};  // --self_test
  std::vector<int64_t> rows = {};
  // Compiler flags.
  bool foreign = false;           // compiles one source of a user, and ends
  std::string cuda_include = {};  // the toolkit's headers; inspections pass it on
  // Worker flags.
  int64_t lanes = 1;  // ordinary ones
};

// Returns the role that a command line's first word names, or nothing for a server's command line.
absl::optional<Role> FindRole(absl::string_view word);

// The command line without the program's name, and back. INVALID_ARGUMENT for words that ToWords
// does not write.
std::vector<std::string> ToWords(const RoleFlags& flags);
absl::StatusOr<RoleFlags> ParseRoleFlags(Role role, absl::Span<const std::string> words);

}  // namespace warpcall::process
