// A worker that does as agreed, and the sockets of a server that may send it anything.
#pragma once

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "kernels/registry.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/link.h"
#include "server/worker/protocol.h"
#include "tests/cpu_kernels.h"

namespace warpcall::testing {

inline constexpr size_t kStagingBytes = 1 << 20;

// gelu of 1000 floats, with its attribute.
worker::RunRequest GoodRunRequest();

class HostileServer {
 public:
  HostileServer();
  ~HostileServer();
  HostileServer(const HostileServer&) = delete;
  HostileServer& operator=(const HostileServer&) = delete;

  // Returns the worker's answer to a staging size of so many bytes. Called once, first.
  absl::Status ShareStaging(uint64_t bytes);
  // Returns the worker's answer to this request.
  absl::Status Run(const worker::RunRequest& request);
  // Returns the worker's answer to an allocation.
  absl::Status Allocate(const worker::Allocation& allocation);
  void Free(uint64_t number);

 private:
  CpuDevice device_{2};
  process::Channel near_{-1};  // the server's end of control
  process::Channel far_{-1};   // the worker's
  int lane_[2];
  int staging_ = -1;
  worker::MappedMail mail_;
  uint32_t sent_ = 0;
  worker::SpinPlaces places_{0};
  std::thread worker_;
};

}  // namespace warpcall::testing
