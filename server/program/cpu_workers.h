// For tests on machines without several GPUs: the CPU served by worker processes, as GPUs are.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/program/devices.h"

namespace warpcall {

// Starts `options.cpu_workers` workers, whose devices are named cpu:0, cpu:1, ...
absl::StatusOr<std::vector<std::unique_ptr<Device>>> StartCpuWorkers(const DeviceOptions& options);

// Returns true if `device` is named like one of those workers' devices.
bool IsCpuWorker(absl::string_view device);

// Runs the worker process for `options.selection`, as RunWorker (server/program/devices.h) does.
absl::Status RunCpuWorker(const DeviceOptions& options, const process::Channel& parent);

}  // namespace warpcall
