// The process that a server starts to answer one Benchmark, Profile or Describe: this program
// again.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/flags/config.h"
#include "server/inspect/inspector.h"
#include "server/process/child.h"
#include "server/process/role.h"

namespace warpcall {

// In the server. The process offers the rows that `registry` does.
absl::StatusOr<std::unique_ptr<process::Child>> StartInspection(const inspect::Inquiry& inquiry,
                                                                const Registry& registry,
                                                                const Config& config);

// In the process that was started, instead of serving: its exit status.
int RunInspection(const process::RoleFlags& flags, const process::Channel& parent);

}  // namespace warpcall
