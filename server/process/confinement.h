// Confines a process that works on bytes of people who are not trusted, such as the source of a
// pushed kernel, so that a defect in a library gives them nothing but this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace warpcall::process {

// False in builds with AddressSanitizer or ThreadSanitizer, which reserve terabytes.
extern const bool kLimitsMemory;

struct Confinement {
  std::vector<std::string> folders = {};  // files below them stay readable
  // Limits the process's whole address space, where kLimitsMemory, and its CPU time; 0: no limit.
  // SIGXCPU comes at the limit, SIGKILL five seconds later.
  int64_t address_space_bytes = 0;
  int64_t cpu_seconds = 0;
  // Also writes no file, log included, and forgets its environment.
  bool silent = false;
};

// Confines this process and all of its threads permanently. It can open only files below `folders`,
// and only to read. It cannot create sockets or processes, run programs, or signal, trace or read
// other processes. Open descriptors stay open. System calls outside a short list fail with EPERM.
//
// UNIMPLEMENTED with the reason where the kernel has no Landlock (Linux 5.13) or no seccomp filter;
// what it does have is in force then. INTERNAL if the process has several threads: Landlock would
// leave the others free.
absl::Status Confine(const Confinement& confinement);

}  // namespace warpcall::process
