// The self-test as the server runs it: its children are this program again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/registry.h"
#include "server/flags/config.h"
#include "server/metrics/lifecycle.h"
#include "server/process/role.h"
#include "server/program/devices.h"
#include "server/self_test/self_test.h"

namespace warpcall {

// Begins to try the rows of the devices selected, those that are slow to plan excepted. Null when
// config.self_test is "off". `lifecycle`, which may be null, is told what is tried.
absl::StatusOr<std::unique_ptr<self_test::SelfTest>> StartSelfTest(const Config& config,
                                                                   const DeviceOptions& devices,
                                                                   const Registry& registry,
                                                                   Lifecycle* lifecycle);

// Waits for the self-test to end; does nothing if `self_test` is null. Rows that failed are logged.
// Rows that failed or were not tried are not offered. FAILED_PRECONDITION if a reference failed,
// since then no result can be trusted.
absl::StatusOr<std::vector<self_test::Verdict>> AwaitSelfTest(self_test::SelfTest* self_test,
                                                              Registry* registry);

// TryOthers puts a row's verdict here while the server serves. Both members outlive the self-test.
struct Offers {
  Registry* registry;
  // Sets the service rate that the self-test measured for the row.
  std::function<void(int row, const ServiceRate& rate)> set_rate;
};

// Starts to try the rows not tried yet, unless `self_test` is null, and offers those that pass.
// `verdicts` are AwaitSelfTest's.
void TryOthers(self_test::SelfTest* self_test, std::vector<self_test::Verdict> verdicts,
               Offers offers);

// "ok", and how many rows are not tried yet, if any.
std::string Readiness(const Registry& registry);

// Rows for kinds of devices that `engine` does not have are not offered either. Logs the kernels of
// which nothing but the float64 reference is left.
void LeaveOutUnserved(const Engine& engine, Registry* registry);

// RoleFlags::unavailable_rows: the rows that a process must not offer, and what that process makes
// of them.
std::vector<std::string> UnavailableRows(const Registry& registry);
void SetUnavailable(absl::Span<const std::string> rows, Registry* registry);

// In a process that StartSelfTest started, instead of serving: its exit status.
int TryRows(const process::RoleFlags& flags, const process::Channel& parent);

// Instead of serving: prints what became of each row. The exit status is 0 when all passed that
// this machine can run, 1 otherwise.
int CheckRows(const Config& config, const DeviceOptions& devices);

}  // namespace warpcall
