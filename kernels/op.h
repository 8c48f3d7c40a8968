// The vocabulary of kernels: what a problem is, what an op promises, what an implementation (a row
// of the op's menu) must do. No pointers appear in a Problem: selection runs before memory is
// touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/device_properties.h"
#include "proto/common/data_type.h"

namespace warpcall {

inline constexpr int kRankMax = 8;

using Dims = absl::InlinedVector<int64_t, kRankMax>;

struct TensorSpec {
  DataType data_type = DataType::kFloat32;
  Dims dims;  // row-major, slowest first

  // Both are exact for every spec that CheckTensorSpec accepted.
  int64_t elements() const;
  size_t bytes() const;

  bool operator==(const TensorSpec& other) const {
    return data_type == other.data_type && dims == other.dims;
  }
};

// OK when 1 <= rank <= kRankMax, no dimension is negative, and the byte count fits an int64 even
// with dimensions of zero left out (so that strides never overflow). `label` opens the message.
absl::Status CheckTensorSpec(const TensorSpec& spec, absl::string_view label);

// "float32[2,3]"
std::string ToString(const TensorSpec& spec);

using AttributeValue = std::variant<bool, int64_t, double, std::string>;

struct AttributeSpec {
  const char* name;
  const char* summary;
  AttributeValue default_value;             // its alternative is the attribute's type
  std::vector<std::string> allowed_values;  // accepted by a string attribute; empty: all
  bool required = false;                    // the default is only there for its type
};

struct NamedAttribute {
  absl::string_view name;
  AttributeValue value;
};

class StepGraph;  // kernels/graph/step_graph.h
size_t HashOf(const StepGraph& graph);
bool AreEqual(const StepGraph& a, const StepGraph& b);

// A problem whose parts fit each other: MakeProblem is the only way in from outside, and for graphs
// ReadGraph of server/transport.
struct Problem {
  absl::InlinedVector<TensorSpec, 2> inputs;
  absl::InlinedVector<TensorSpec, 1> outputs;
  absl::InlinedVector<AttributeValue, 3> attributes;  // in the op's order, defaults filled in
  std::shared_ptr<const StepGraph> graph;             // null: a problem of one op

  bool operator==(const Problem& other) const {
    if (inputs != other.inputs || outputs != other.outputs || attributes != other.attributes)
      return false;
    if (graph == nullptr || other.graph == nullptr) return graph == other.graph;
    return graph == other.graph || AreEqual(*graph, *other.graph);
  }

  // Outputs follow from the rest.
  template <typename Hash>
  friend Hash AbslHashValue(Hash state, const Problem& problem) {
    for (const TensorSpec& spec : problem.inputs)
      state = Hash::combine(std::move(state), spec.data_type, spec.dims);
    return Hash::combine(std::move(state), problem.attributes,
                         problem.graph == nullptr ? 0 : HashOf(*problem.graph));
  }
};

// The inputs: "float32[2,3], float32[3]".
std::string InputsToString(const Problem& problem);

// Lower bound of the cost of the op's definition, whatever the implementation.
struct Work {
  int64_t bytes = 0;  // inputs read once + outputs written once
  int64_t flops = 0;
};

// Names the parts of an op's problems that depend on no other part. A device can copy one part
// while it works on another, and a client can spread parts over connections.
enum class Independence : uint8_t {
  kNone,        // the problem is one piece
  kElements,    // every element; all split operands have one shape
  kBeforeAxis,  // all elements behind each index of the dimensions before the attribute "axis"; all
                // split operands have one shape
  kRows,  // all elements behind each index of all but input 0's last dimension; every split operand
          // has these dimensions, and a last one of its own
  kBroadcastRows,  // rows of the output, as in kRows: inputs with its outer dimensions are split,
                   // inputs of one row are shared; any other input makes the problem one piece
  kProductRows,    // rows of matrix a, if all share one matrix b and "transpose_a" is false;
                   // products of a batch that a and b both have; else the problem is one piece
};

// Says which share of an operand each part of a problem gets.
enum class OperandRole : uint8_t {
  kSplit,   // part i has the i-th of as many equal pieces of its memory as there are parts
  kShared,  // every part has all of it
};

struct Operands;

// Elements of output 0: first, first + stride, ..., `count` of them.
struct Slice {
  int64_t first = 0;
  int64_t stride = 1;
  int64_t count = 0;
};

// Tells running work to end early and leave its outputs unfinished, because nobody waits for the
// work any more or its time is up.
class StopFlag {
 public:
  virtual ~StopFlag() = default;
  // Thread-safe; once true, always true. Costs less than 100 ns.
  virtual bool IsSet() const = 0;
};

// `stop` may be null: never.
inline bool IsSet(const StopFlag* stop) { return stop != nullptr && stop->IsSet(); }

// Takes a slice's values in order, piece by piece, so that no caller holds a long slice whole.
// Wraps any callable of the values, and must not outlive it.
class TakeValues {
 public:
  template <typename Take,
            typename = std::enable_if_t<!std::is_same_v<std::decay_t<Take>, TakeValues>>>
  TakeValues(Take&& take, const StopFlag* stop = nullptr) : take_(take), stop_(stop) {}

  void operator()(absl::Span<const double> values) const { take_(values); }
  // True when the values to come are wanted no more.
  bool Stopped() const { return IsSet(stop_); }

 private:
  absl::FunctionRef<void(absl::Span<const double>)> take_;
  const StopFlag* stop_;
};

// The op in float64: the truth that every implementation is measured by. It yields output 0 slice
// by slice; each element belongs to exactly one slice. Thread-safe.
struct Definition {
  // 0 when output 0 has no elements.
  int64_t (*slices)(const Problem& problem);
  // REQUIRES, here and below: 0 <= index < slices(problem).
  Slice (*slice)(const Problem& problem, int64_t index);
  // The values before they are rounded to the data type. Reads inputs on the host, no outputs. Asks
  // take.Stopped() at least every 50 ms, and ends early then.
  void (*evaluate)(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take);
};

struct OpCases;  // kernels/check/cases.h

struct Op {
  const char* name;
  const char* summary;
  std::vector<const char*> input_names;
  std::vector<AttributeSpec> attributes;
  // The only shape and attribute check of the op. `problem` has valid inputs and attributes of the
  // right types; fills problem->outputs. Null: the server makes the op's problems, and no request
  // names it.
  absl::Status (*infer_outputs)(Problem* problem);
  Work (*work)(const Problem& problem);
  Independence independence = Independence::kNone;
  // Roles of the first inputs, in their order, for problems in parts where the kind of independence
  // does not decide. Inputs beyond the list are split, as outputs are.
  std::vector<OperandRole> input_roles = {};
  // Returns true for problems of kBroadcastRows that are one piece whatever the inputs. Null: none.
  bool (*is_one_piece)(const Problem& problem) = nullptr;
  // Returns true for problems that an expression of the kernel "fused" says as well. Null: none.
  bool (*is_expressible)(const Problem& problem) = nullptr;
  // Null: there is nothing to compare outputs with.
  const Definition* definition = nullptr;
  // Returns the cases its implementations are checked on. Null: they are not checked.
  OpCases (*cases)() = nullptr;
  // Minimum input count of a variadic op, whose infer_outputs checks the exact number. 0: the op
  // takes all of input_names.
  size_t inputs_min = 0;
};

// Returns the number of independent parts of `problem`; 0 when its output has no elements.
int64_t PartsOf(const Op& op, const Problem& problem);
// Returns the role of operand number `operand`, counting inputs first, then outputs.
OperandRole RoleOf(const Op& op, const Problem& problem, size_t operand);
// Returns the bytes of all operands that have the role.
size_t BytesOf(const Op& op, const Problem& problem, OperandRole role);
// Returns the problem of `count` neighbouring parts. REQUIRES: 1 <= count <= PartsOf(op, problem),
// and count is PartsOf(op, problem) for an op without independent parts.
Problem TakeParts(const Op& op, const Problem& problem, int64_t count);

using AttributeValues = absl::InlinedVector<AttributeValue, 3>;  // in the op's order
// Those given, and the defaults of the others. INVALID_ARGUMENT names an attribute that the op does
// not have, has with another type or requires, or a value that it does not take.
absl::StatusOr<AttributeValues> CompleteAttributes(const Op& op,
                                                   absl::Span<const NamedAttribute> given);

// Checks the number of inputs, each spec, each attribute (name, type, allowed values) and the op's
// own rule. INVALID_ARGUMENT otherwise, naming value and limit.
absl::StatusOr<Problem> MakeProblem(const Op& op, absl::Span<const TensorSpec> inputs,
                                    absl::Span<const NamedAttribute> attributes);

// Memory of one launch, in the problem's order. Inputs and outputs never overlap; each is aligned
// to kOperandAlignmentBytes; a tensor of zero elements may be null.
struct Operands {
  absl::InlinedVector<const void*, 2> inputs;
  absl::InlinedVector<void*, 1> outputs;
};
inline constexpr size_t kOperandAlignmentBytes = 256;

// Times the steps of a graph, in the order of a stream.
class StepClock {
 public:
  virtual ~StepClock() = default;
  // Once before the first step; a stamp before and one after each step; once after the last.
  virtual absl::Status Begin(int steps) = 0;
  virtual absl::Status Stamp() = 0;
  virtual absl::Status End() = 0;
};

struct LaunchContext {
  void* stream = nullptr;     // cudaStream_t on a GPU, cpu::ThreadPool* on the CPU
  void* workspace = nullptr;  // the plan's workspace_bytes, aligned like an operand
  // Null: never. A long-running CPU row checks the flag at least every 50 ms. Once it is set, the
  // row ends with OK, whatever its outputs then hold. Libraries work in pieces that are short
  // enough, as far as they can.
  const StopFlag* stop = nullptr;
  StepClock* step_clock = nullptr;  // for a graph that times its steps; null: nobody asks
  // A bit for each input that nothing has written since the kernel ahead of this launch began: one
  // that is launched before that kernel ends may read it at once.
  uint32_t settled_inputs = 0;
};

struct LaunchShape {
  uint32_t grid[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
  double theoretical_occupancy = 0;
  double waves = 0;
  int32_t gpu_kernels = 0;
  int32_t registers_per_thread = 0;
  int64_t shared_memory_bytes = 0;  // per block, static and dynamic
  int64_t local_memory_bytes = 0;   // per thread: what does not fit into its registers
};

// kPushed: a caller's own, which no catalog has. kGraph: steps, which other rows run.
enum class Family : uint8_t {
  kReference,
  kCpu,
  kManual,
  kCuda,
  kTriton,
  kCompiled,
  kLibrary,
  kPushed,
  kGraph,
};
const char* FamilyName(Family family);

class Plan;  // kernels/plan.h
struct PlanContext;

struct Implementation {  // one row of an op's menu; order in the list is preference
  const char* name;      // the technique, e.g. "warp_per_row"
  Family family;
  DeviceKind device_kind;
  const char* summary;
  std::vector<DataType> data_types;
  // OK, or why not, for the caller to read.
  absl::Status (*supports)(const Problem&, const DeviceProperties&);
  // Reads every input element and writes every output element once, so that it loses nothing when
  // they lie in host memory.
  bool suits_host_memory = false;
  // The ways that a plan's launch can go: one for each kernel that is compiled for the row, and for
  // each path that a problem or the row's own choice decides; made from the table that the kernels
  // are instantiated from. A variant's number is its place in this list. Names are distinct. Null:
  // every problem of a data type goes the same way.
  std::vector<std::string> (*variant_names)(DataType type) = nullptr;
  // Making a plan takes long: candidates are tried, or code is compiled.
  bool slow_to_plan = false;
  // Makes the plan of a problem that the row supports. UNIMPLEMENTED if planning finds a limit that
  // `supports` could not see; INVALID_ARGUMENT if context.variant does not take the problem.
  std::function<absl::StatusOr<std::shared_ptr<const Plan>>(const Problem&, const PlanContext&)>
      plan = nullptr;
  // Source file of the row, as its compiler names it. Set by default only.
  const char* file = __builtin_FILE();
};

// A `supports` for rows that take every valid problem.
absl::Status SupportsAll(const Problem&, const DeviceProperties&);

// An `is_expressible` for ops whose problems all are.
inline bool IsAlwaysExpressible(const Problem&) { return true; }

}  // namespace warpcall
