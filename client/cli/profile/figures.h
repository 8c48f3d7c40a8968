// Figures of an average run, from a profile, the plan of the run and its device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/common/catalog.h"
#include "proto/common/pinned_name.h"
#include "warpcall/client.h"

namespace warpcall::cli {

struct Profiled {
  std::string kernel = {};  // its name, or the file of a graph
  bool is_graph = false;
  int32_t iterations_asked = 0;  // 0: the server's default
  client::ProfileReport report = {};
  // Plan of the implementation that ran, and its device. If unknown, empty with the reason.
  client::Description plan = {};
  std::string plan_missing = {};
  client::DeviceInfo device = {};
};

// -1 where something is not known. Times in nanoseconds, overlaps counted twice.
struct Figures {
  double run_ns = -1;         // from when a run was submitted until it was done
  double kernel_ns = 0;       // all kernels
  double kernels = 0;         // launches
  double gap_ns = 0;          // the device had nothing to do between its first and last activity
  double transfer_ns = 0;     // the device's copies, and the host's of what a request brings
  double least_bytes = -1;    // read and written once
  double flops = -1;          // that the op's definition has
  double counted_bytes = -1;  // that memory gave and took
  double ceiling_bytes_per_second = -1;  // a copy, read plus written
  double bytes_per_second = -1;          // least_bytes over kernel_ns
  double flops_per_second = -1;
  double fraction_of_ceiling = -1;
  // Over memory by the least bytes: counted, and as many as a copy would do in kernel_ns.
  double passes = -1;
  double passes_max = -1;
  // Means over the kernels, weighted by their time.
  double achieved_occupancy = -1;
  double sm_throughput = -1;
  double dram_throughput = -1;
  // CPU only, as shares of the time of all hardware threads.
  double threads_busy = -1;
  double threads_waiting = -1;  // until a core was free
  double instructions = -1;
  double cycles = -1;
};
Figures FiguresOf(const Profiled& profiled);

// The implementation that ran; a graph, which has several, is named by its file.
inline std::string NameOf(const Profiled& profiled) {
  return profiled.is_graph
             ? profiled.kernel
             : PinnedName(profiled.report.implementation(), profiled.report.variant());
}

// True if other work on the machine makes the times useless; report.inconclusive says why. With a
// GPU only where the host's threads take longer than the kernels.
bool IsInconclusive(const Profiled& profiled, const Figures& figures);

// A share of a copy's speed that memory alone does not give: caches helped, or the copy was
// measured while the machine did other work.
inline constexpr double kAboveMemory = 1.05;

// "%.1f%%" of a share; "-" where it is not known.
std::string PercentOf(double share);

// The kinds of rows.
inline constexpr char kKernelRow[] = "kernel";
inline constexpr char kCopyRow[] = "copy";
inline constexpr char kGapRow[] = "gap";
inline constexpr char kHostRow[] = "host";
inline constexpr char kThreadRow[] = "thread";
inline constexpr char kCounterRow[] = "counter";
inline constexpr char kCpuKind[] = "cpu";  // device kind

// True for rows of the device's own, sequential work; false for rows of the host.
bool IsOfDevice(const client::ProfileRow& row);

}  // namespace warpcall::cli
