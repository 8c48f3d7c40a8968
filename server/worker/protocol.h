// The messages between the server and its worker processes: plain structs, one to a message of the
// control channel and one to a mailbox of each lane. Both ends are the same program, so layouts
// agree. But the memory of either may be corrupted (a GPU's driver can write anywhere), so neither
// trusts the other's bytes: no field is used before it was checked, and every bit pattern is a
// value of each field's type.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/compiled/counts.h"
#include "kernels/graph/step_graph.h"
#include "kernels/registry.h"
#include "server/engine/executor.h"
#include "server/engine/job.h"
#include "server/engine/metrics_sink.h"
#include "server/runtime/device.h"

namespace warpcall::worker {

// Of a job that is no graph.
inline constexpr int kInputsMax = 8;
inline constexpr int kOutputsMax = 2;
// Of any job: a graph has at most as many outputs as steps.
inline constexpr int kOperandsMax = kGraphInputsMax + kGraphStepsMax;
// Graphs that a lane knows.
inline constexpr int kGraphsMax = 64;
inline constexpr int kAttributesMax = 4;
// Total of a job's attributes: an expression of fused, and the other attributes' names.
inline constexpr int kTextsBytesMax = 4096 + 256;
inline constexpr int kTextBytes = 32;
inline constexpr int kMessageBytes = 1024;
inline constexpr int kErrorCodesMax = 32;

struct WireStatus {
  int32_t code;
  int32_t is_compile_error;     // 0 or 1
  char message[kMessageBytes];  // cut to fit
};

// worker -> server on the control channel, first: the device, or why there is none.
struct Hello {
  WireStatus status;
  char name[kTextBytes];
  char description[256];
  char compute_capability[kTextBytes];
  char pci_bus_id[kTextBytes];
  int64_t memory_bytes;
  int64_t resident_bytes_max;
  int64_t l2_bytes;
  int64_t shared_memory_per_block_bytes;
  int32_t multiprocessors;
  int32_t threads_per_multiprocessor;
  int32_t architecture;
  int32_t ordinal;
  int32_t kind;
};

// server -> worker on the control channel: the staging memory has this size now; answered with a
// WireStatus when the worker's device can use it.
struct StagingReady {
  uint64_t bytes;
  int32_t spin_places;  // for lanes that wait for work: see SpinPlaces
};

// server -> worker on the control channel, from then on: no job will use this tensor again. Not
// answered.
struct FreeResident {
  uint64_t number;
};

struct WireTensor {
  int32_t data_type;
  int32_t rank;
  int64_t dims[kRankMax];
};

struct WireAttribute {
  int32_t kind;  // index of AttributeValue's alternative
  uint8_t as_bool;
  uint32_t text_bytes;  // in RunRequest::texts, behind the texts of earlier attributes
  int64_t as_int;
  double as_double;
};

// RunRequest::row of messages that run nothing: one has the worker allocate a tensor, the other
// brings a part of a graph (GraphToBytes).
inline constexpr int32_t kAllocateRow = -1;
inline constexpr int32_t kGraphRow = -2;

// server -> worker in a lane's mailbox. Unused elements of arrays are not written: the message of a
// small job stays small.
//
//   an operand in staging:               offsets[i] from the beginning of staging
//   an operand in a tensor that stays:   offsets[i] from the beginning of tensor numbers[i];
//                                        bit i of `residents` is set
//   kAllocateRow:                        tensor numbers[0] gets offsets[0] bytes; bit 0 of
//                                        `residents` is set
//   kGraphRow:                           `texts` has the bytes of graph number `graph` from
//                                        offsets[0] on, of offsets[1] in all
//   a graph's row:                       runs graph number `graph`; there are no inputs and no
//                                        attributes
struct RunRequest {
  int32_t row;  // Row::id, the same in both
  int32_t input_count;
  int32_t attribute_count;
  uint32_t text_bytes;  // all attributes' together
  int32_t graph;        // 0 .. kGraphsMax - 1
  int32_t operand_count;
  uint64_t residents[kOperandsMax / 64];
  uint64_t offsets[kOperandsMax];  // inputs first
  WireAttribute attributes[kAttributesMax];
  WireTensor inputs[kInputsMax];
  uint64_t numbers[kOperandsMax];
  char texts[kTextsBytesMax];
};

// Copies the used part of the message. `from` may lie where another process writes: no more than
// fits is copied, whatever sizes it states.
void CopyMessage(const RunRequest& from, RunRequest* to);

// How a step of a graph ran.
struct WireStep {
  LaunchShape launch;
  int64_t kernel_ns;
};

// The answer, but for a graph's steps.
struct RunFacts {
  WireStatus status;
  int32_t failed_step;  // of a graph; -1: none
  uint8_t has_pushback;
  int64_t pushback_ms;
  uint8_t healthy;
  RejectReason reject_reason;
  int64_t h2d_ns;
  int64_t kernel_ns;
  int64_t d2h_ns;
  int64_t device_ns;
  LaunchShape launch;
  MemoryUsage memory;
  compiled::Counts compile_counts;
  int64_t errors[kErrorCodesMax];  // DeviceErrorCount::count, in its order
  uint8_t replayed;
  uint8_t has_step_times;
  int32_t step_count;  // of a graph that ran
};

// The answer. Unused elements of `steps` are not written.
struct RunReply : RunFacts {
  WireStep steps[kGraphStepsMax];
};

void CopyMessage(const RunReply& from, RunReply* to);

void ToWire(const GraphRun& run, RunReply* reply);
// REQUIRES: CheckReply found nothing.
void FromWire(const RunReply& reply, GraphRun* run);
WireStatus ToWire(const absl::Status& status);
// INTERNAL for a code that there is not.
absl::Status FromWire(const WireStatus& status);
Hello ToWire(const DeviceProperties& properties);
// INTERNAL when they cannot be a device's.
absl::StatusOr<DeviceProperties> FromWire(const Hello& hello);
// All but the operands' places. INTERNAL for a problem that does not fit the structs.
absl::Status ToWire(const Job& job, RunRequest* request);

struct Allocation {
  uint64_t number;
  uint64_t bytes;
};
void ToWire(const Allocation& allocation, RunRequest* request);
// Part `at` of a graph's bytes.
void ToWire(int graph, absl::string_view bytes, size_t at, RunRequest* request);
// The number of bytes of a part that is full.
inline constexpr size_t kGraphPartBytes = kTextsBytesMax;
// INTERNAL when the message is none. REQUIRES: kAllocateRow.
absl::StatusOr<Allocation> AllocationOf(const RunRequest& request);
// INTERNAL when there is no such row.
absl::StatusOr<const Row*> RowOf(const RunRequest& request, const Registry& registry);
// The graphs that a lane was given.
class GraphShelf {
 public:
  // Takes a part. INTERNAL, INVALID_ARGUMENT: the parts make no graph. REQUIRES: kGraphRow.
  absl::Status Add(const RunRequest& request, const Registry& registry);
  // INTERNAL when there is no such graph.
  absl::StatusOr<Problem> Find(const RunRequest& request) const;

 private:
  std::string incoming_;
  std::optional<Problem> graphs_[kGraphsMax];
};

// INVALID_ARGUMENT or INTERNAL for what is no problem of `op`.
absl::StatusOr<Problem> ProblemOf(const RunRequest& request, const Op& op);

// Operands as Executor::Run and Job::residents have them.
struct PlacedOperands {
  absl::InlinedVector<StagingRange, 3> staging;
  absl::InlinedVector<ResidentPlace, 3> residents;
};
// Returns the tensor with this number; null: there is none.
using FindResident = absl::FunctionRef<std::shared_ptr<ResidentMemory>(uint64_t number)>;
// The problem's operands in `staging` and in tensors that stay. INTERNAL when one of them does not
// lie there, or an output lies in another operand.
absl::StatusOr<PlacedOperands> OperandsOf(const RunRequest& request, const Problem& problem,
                                          absl::Span<char> staging, FindResident find);
// INTERNAL when the reply is none that a worker in its right mind gives.
absl::Status CheckReply(const RunReply& reply);

}  // namespace warpcall::worker
