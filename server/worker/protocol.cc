#include "server/worker/protocol.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/program.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/worker/graph_message.h"

namespace warpcall::worker {
namespace {

// Upper bound that no process reaches in compilations or nanoseconds; sums do not overflow.
constexpr int64_t kCompileCountMax = int64_t{1} << 53;

template <size_t kSize>
void SetText(char (&to)[kSize], absl::string_view text) {
  to[text.copy(to, kSize - 1)] = '\0';
}

// Up to the terminator, if there is one.
template <size_t kSize>
std::string TextOf(const char (&from)[kSize]) {
  return std::string(from, strnlen(from, kSize));
}

absl::Status InvalidField(absl::string_view what, int64_t value) {
  return absl::InternalError(
      absl::StrCat("the other process sent nonsense: ", what, " is ", value));
}

absl::Status TooLarge(absl::string_view what, size_t value, size_t limit) {
  return absl::InternalError(
      absl::StrCat("a worker takes ", limit, " ", what, " at most, got ", value));
}

absl::Status AddAttribute(const AttributeValue& value, RunRequest* request) {
  WARPCALL_CHECK(request->attribute_count < kAttributesMax, request->attribute_count);
  WireAttribute& wire = request->attributes[request->attribute_count++];
  wire = {};
  wire.kind = static_cast<int32_t>(value.index());
  if (const bool* as_bool = std::get_if<bool>(&value)) wire.as_bool = *as_bool;
  if (const int64_t* as_int = std::get_if<int64_t>(&value)) wire.as_int = *as_int;
  if (const double* as_double = std::get_if<double>(&value)) wire.as_double = *as_double;
  if (const std::string* text = std::get_if<std::string>(&value)) {
    const size_t bytes = request->text_bytes + text->size();
    if (bytes > kTextsBytesMax) return TooLarge("bytes of attributes", bytes, kTextsBytesMax);
    text->copy(request->texts + request->text_bytes, text->size());
    wire.text_bytes = static_cast<uint32_t>(text->size());
    request->text_bytes += wire.text_bytes;
  }
  return absl::OkStatus();
}

// `text` is its part of the request's.
absl::StatusOr<AttributeValue> AttributeOf(const WireAttribute& wire, absl::string_view text) {
  switch (wire.kind) {
    case 0:
      return AttributeValue(wire.as_bool != 0);
    case 1:
      return AttributeValue(wire.as_int);
    case 2:
      return AttributeValue(wire.as_double);
    case 3:
      return AttributeValue(std::string(text));
    default:
      return InvalidField("an attribute's type", wire.kind);
  }
}

absl::StatusOr<TensorSpec> SpecOf(const WireTensor& wire) {
  if (wire.data_type < 0 || wire.data_type > std::numeric_limits<uint8_t>::max())
    return InvalidField("a data type", wire.data_type);
  if (wire.rank < 0 || wire.rank > kRankMax) return InvalidField("a rank", wire.rank);
  return TensorSpec{static_cast<DataType>(wire.data_type), Dims(wire.dims, wire.dims + wire.rank)};
}

bool HasResident(const RunRequest& request, size_t operand) {
  return (request.residents[operand / 64] >> operand % 64 & 1) != 0;
}

bool HasAnyResident(const RunRequest& request) {
  return std::any_of(std::begin(request.residents), std::end(request.residents),
                     [](uint64_t bits) { return bits != 0; });
}

absl::Status CheckStep(const LaunchShape& launch, int64_t kernel_ns) {
  for (const int64_t value :
       {kernel_ns, int64_t{launch.gpu_kernels}, int64_t{launch.registers_per_thread},
        launch.shared_memory_bytes, launch.local_memory_bytes})
    if (value < 0) return InvalidField("a time or a size", value);
  if (std::isfinite(launch.theoretical_occupancy) && std::isfinite(launch.waves))
    return absl::OkStatus();
  return absl::InternalError("the other process sent nonsense: occupancy or waves are no numbers");
}

// Makes it a message with room for so many operands, none of which is in a tensor that stays.
void Clear(int32_t row, size_t operands, RunRequest* request) {
  request->row = row;
  request->input_count = 0;
  request->attribute_count = 0;
  request->text_bytes = 0;
  request->graph = 0;
  request->operand_count = static_cast<int32_t>(operands);
  std::fill(std::begin(request->residents), std::end(request->residents), 0);
}

bool Overlap(const StagingRange& a, const StagingRange& b) {
  return a.bytes > 0 && b.bytes > 0 && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

}  // namespace

void ToWire(const GraphRun& run, RunReply* reply) {
  WARPCALL_CHECK(run.launches.size() <= kGraphStepsMax, run.launches.size());
  reply->replayed = run.replayed ? 1 : 0;
  reply->has_step_times = run.step_ns.empty() ? 0 : 1;
  reply->step_count = static_cast<int32_t>(run.launches.size());
  for (size_t i = 0; i < run.launches.size(); ++i)
    reply->steps[i] = {run.launches[i], i < run.step_ns.size() ? run.step_ns[i] : 0};
}

void FromWire(const RunReply& reply, GraphRun* run) {
  run->replayed = reply.replayed != 0;
  run->launches.clear();
  run->step_ns.clear();
  for (int i = 0; i < reply.step_count; ++i) {
    run->launches.push_back(reply.steps[i].launch);
    if (reply.has_step_times != 0) run->step_ns.push_back(reply.steps[i].kernel_ns);
  }
}

WireStatus ToWire(const absl::Status& status) {
  WireStatus wire = {};
  wire.code = static_cast<int32_t>(status.code());
  wire.is_compile_error = compiled::IsCompileError(status) ? 1 : 0;
  SetText(wire.message, status.message());
  return wire;
}

absl::Status FromWire(const WireStatus& status) {
  if (status.code < 0 || status.code > static_cast<int32_t>(absl::StatusCode::kUnauthenticated))
    return InvalidField("a status code", status.code);
  absl::Status told(static_cast<absl::StatusCode>(status.code), TextOf(status.message));
  return status.is_compile_error != 0 ? compiled::AsCompileError(std::move(told)) : told;
}

Hello ToWire(const DeviceProperties& properties) {
  Hello hello = {};
  SetText(hello.name, properties.name);
  SetText(hello.description, properties.description);
  SetText(hello.compute_capability, properties.compute_capability);
  SetText(hello.pci_bus_id, properties.pci_bus_id);
  hello.memory_bytes = properties.memory_bytes;
  hello.l2_bytes = properties.l2_bytes;
  hello.shared_memory_per_block_bytes = properties.shared_memory_per_block_bytes;
  hello.multiprocessors = properties.multiprocessors;
  hello.threads_per_multiprocessor = properties.threads_per_multiprocessor;
  hello.architecture = properties.architecture;
  hello.ordinal = properties.ordinal;
  hello.kind = static_cast<int32_t>(properties.kind);
  return hello;
}

absl::StatusOr<DeviceProperties> FromWire(const Hello& hello) {
  if (hello.kind < 0 || hello.kind > static_cast<int32_t>(DeviceKind::kCuda))
    return InvalidField("a kind of device", hello.kind);
  for (const int64_t count : {hello.memory_bytes, hello.resident_bytes_max, hello.l2_bytes,
                              hello.shared_memory_per_block_bytes, int64_t{hello.multiprocessors},
                              int64_t{hello.threads_per_multiprocessor},
                              int64_t{hello.architecture}, int64_t{hello.ordinal}})
    if (count < 0) return InvalidField("a property of a device", count);
  DeviceProperties properties;
  properties.name = TextOf(hello.name);
  properties.kind = static_cast<DeviceKind>(hello.kind);
  properties.description = TextOf(hello.description);
  properties.compute_capability = TextOf(hello.compute_capability);
  properties.pci_bus_id = TextOf(hello.pci_bus_id);
  properties.memory_bytes = hello.memory_bytes;
  properties.l2_bytes = hello.l2_bytes;
  properties.shared_memory_per_block_bytes = hello.shared_memory_per_block_bytes;
  properties.multiprocessors = hello.multiprocessors;
  properties.threads_per_multiprocessor = hello.threads_per_multiprocessor;
  properties.architecture = hello.architecture;
  properties.ordinal = hello.ordinal;
  return properties;
}

// The counts are read once, however often the compiler would like to.
void CopyMessage(const RunRequest& from, RunRequest* to) {
  to->row = from.row;
  to->input_count = static_cast<const volatile int32_t&>(from.input_count);
  to->attribute_count = from.attribute_count;
  to->text_bytes = static_cast<const volatile uint32_t&>(from.text_bytes);
  to->graph = from.graph;
  to->operand_count = static_cast<const volatile int32_t&>(from.operand_count);
  for (size_t i = 0; i < std::size(from.residents); ++i)
    to->residents[i] = static_cast<const volatile uint64_t&>(from.residents[i]);
  const auto operands = static_cast<size_t>(std::clamp(to->operand_count, 0, kOperandsMax));
  for (size_t i = 0; i < operands; ++i) to->offsets[i] = from.offsets[i];
  for (int i = 0; i < kAttributesMax; ++i) to->attributes[i] = from.attributes[i];
  const int inputs = std::clamp(to->input_count, 0, kInputsMax);
  for (int i = 0; i < inputs; ++i) to->inputs[i] = from.inputs[i];
  for (size_t i = 0; i < operands; ++i)
    if (HasResident(*to, i)) to->numbers[i] = from.numbers[i];
  const size_t bytes = std::min<uint32_t>(to->text_bytes, kTextsBytesMax);
  absl::string_view(from.texts, bytes).copy(to->texts, bytes);
}

void CopyMessage(const RunReply& from, RunReply* to) {
  static_cast<RunFacts&>(*to) = from;
  const int steps = std::clamp(to->step_count, 0, kGraphStepsMax);
  for (int i = 0; i < steps; ++i) to->steps[i] = from.steps[i];
}

absl::Status ToWire(const Job& job, RunRequest* request) {
  WARPCALL_DCHECK(job.row != nullptr, job.key.id);
  const Problem& problem = job.problem;
  Clear(job.row->id, problem.inputs.size() + problem.outputs.size(), request);
  if (problem.graph != nullptr) return absl::OkStatus();
  if (problem.inputs.size() > kInputsMax)
    return TooLarge("inputs", problem.inputs.size(), kInputsMax);
  if (problem.outputs.size() > kOutputsMax)
    return TooLarge("outputs", problem.outputs.size(), kOutputsMax);
  if (problem.attributes.size() > kAttributesMax)
    return TooLarge("attributes", problem.attributes.size(), kAttributesMax);
  request->input_count = static_cast<int32_t>(problem.inputs.size());
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const TensorSpec& spec = problem.inputs[i];
    WireTensor& wire = request->inputs[i];
    wire.data_type = static_cast<int32_t>(spec.data_type);
    wire.rank = static_cast<int32_t>(spec.dims.size());
    for (size_t k = 0; k < spec.dims.size(); ++k) wire.dims[k] = spec.dims[k];
  }
  for (const AttributeValue& value : problem.attributes)
    RETURN_IF_ERROR(AddAttribute(value, request));
  return absl::OkStatus();
}

void ToWire(int graph, absl::string_view bytes, size_t at, RunRequest* request) {
  WARPCALL_CHECK(at <= bytes.size() && graph >= 0 && graph < kGraphsMax, at, bytes.size(), graph);
  const absl::string_view part = bytes.substr(at, kGraphPartBytes);
  Clear(kGraphRow, 2, request);
  request->graph = graph;
  request->offsets[0] = at;
  request->offsets[1] = bytes.size();
  request->text_bytes = static_cast<uint32_t>(part.size());
  part.copy(request->texts, part.size());
}

void ToWire(const Allocation& allocation, RunRequest* request) {
  Clear(kAllocateRow, 1, request);
  request->residents[0] = 1;
  request->offsets[0] = allocation.bytes;
  request->numbers[0] = allocation.number;
}

absl::StatusOr<Allocation> AllocationOf(const RunRequest& request) {
  WARPCALL_DCHECK(request.row == kAllocateRow, request.row);
  if (request.operand_count != 1)
    return InvalidField("a number of operands", request.operand_count);
  if (request.residents[0] != 1)
    return InvalidField("a set of tensors", static_cast<int64_t>(request.residents[0]));
  if (request.offsets[0] == 0) return InvalidField("a tensor's size", 0);
  return Allocation{request.numbers[0], request.offsets[0]};
}

absl::StatusOr<const Row*> RowOf(const RunRequest& request, const Registry& registry) {
  if (request.row < 0 || static_cast<size_t>(request.row) >= registry.rows().size())
    return InvalidField("a row", request.row);
  return &registry.rows()[static_cast<size_t>(request.row)];
}

absl::StatusOr<Problem> ProblemOf(const RunRequest& request, const Op& op) {
  if (request.input_count < 0 || request.input_count > kInputsMax)
    return InvalidField("a number of inputs", request.input_count);
  if (request.attribute_count < 0 || request.attribute_count > kAttributesMax ||
      static_cast<size_t>(request.attribute_count) != op.attributes.size())
    return InvalidField("a number of attributes", request.attribute_count);
  if (request.text_bytes > kTextsBytesMax)
    return InvalidField("a number of bytes", request.text_bytes);
  absl::InlinedVector<TensorSpec, 2> inputs;
  for (int i = 0; i < request.input_count; ++i) {
    ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(request.inputs[i]));
    inputs.push_back(std::move(spec));
  }
  absl::InlinedVector<NamedAttribute, 3> attributes;
  absl::string_view texts(request.texts, request.text_bytes);
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    const WireAttribute& wire = request.attributes[i];
    if (wire.text_bytes > texts.size())
      return InvalidField("a number of an attribute's bytes", wire.text_bytes);
    ASSIGN_OR_RETURN(AttributeValue value, AttributeOf(wire, texts.substr(0, wire.text_bytes)));
    texts.remove_prefix(wire.text_bytes);
    attributes.push_back({op.attributes[i].name, std::move(value)});
  }
  return MakeProblem(op, inputs, attributes);
}

absl::StatusOr<PlacedOperands> OperandsOf(const RunRequest& request, const Problem& problem,
                                          absl::Span<char> staging, FindResident find) {
  const size_t count = problem.inputs.size() + problem.outputs.size();
  if (count > kOperandsMax) return TooLarge("operands", count, kOperandsMax);
  if (request.operand_count != static_cast<int32_t>(count))
    return InvalidField("a number of operands", request.operand_count);
  for (size_t i = count; i < kOperandsMax; ++i)
    if (HasResident(request, i)) return InvalidField("a tensor's operand", static_cast<int64_t>(i));
  PlacedOperands placed;
  if (HasAnyResident(request)) placed.residents.resize(count);
  absl::InlinedVector<StagingRange, 3> ranges;  // in staging, and in tensors that stay
  const auto add = [&](const TensorSpec& spec) -> absl::Status {
    const size_t i = ranges.size();
    const uint64_t offset = request.offsets[i];
    const size_t bytes = spec.bytes();
    std::shared_ptr<ResidentMemory> resident;
    if (HasResident(request, i)) {
      resident = find(request.numbers[i]);
      if (resident == nullptr)
        return InvalidField("a tensor's number", static_cast<int64_t>(request.numbers[i]));
    }
    const absl::Span<char> room =
        resident == nullptr ? staging : absl::MakeSpan(resident->data(), resident->bytes());
    if (offset > room.size() || bytes > room.size() - offset ||
        offset % kOperandAlignmentBytes != 0)
      return absl::InternalError(absl::StrCat(
          "the other process sent nonsense: operand ", i, " of ", bytes, " bytes begins at ",
          offset, " of ", room.size(), resident == nullptr ? " in staging" : " in a tensor",
          "; a place is a multiple of ", kOperandAlignmentBytes));
    ranges.push_back({room.data() + offset, bytes});
    placed.staging.push_back(resident == nullptr ? ranges.back() : StagingRange{nullptr, 0});
    if (resident != nullptr) placed.residents[i] = {std::move(resident), offset};
    return absl::OkStatus();
  };
  for (const TensorSpec& spec : problem.inputs) RETURN_IF_ERROR(add(spec));
  for (const TensorSpec& spec : problem.outputs) RETURN_IF_ERROR(add(spec));
  for (size_t output = problem.inputs.size(); output < count; ++output)
    for (size_t other = 0; other < output; ++other)
      if (Overlap(ranges[output], ranges[other]))
        return InvalidField("an output's offset, which lies in another operand,",
                            static_cast<int64_t>(request.offsets[output]));
  return placed;
}

absl::Status GraphShelf::Add(const RunRequest& request, const Registry& registry) {
  WARPCALL_DCHECK(request.row == kGraphRow, request.row);
  if (request.graph < 0 || request.graph >= kGraphsMax)
    return InvalidField("a graph's number", request.graph);
  if (request.operand_count != 2)
    return InvalidField("a number of operands", request.operand_count);
  if (request.text_bytes > kTextsBytesMax)
    return InvalidField("a number of bytes", request.text_bytes);
  const uint64_t total = request.offsets[1];
  if (request.offsets[0] == 0) incoming_.clear();
  if (request.offsets[0] != incoming_.size() || total > kGraphBytesMax ||
      request.text_bytes > total - incoming_.size())
    return InvalidField("a graph's part", static_cast<int64_t>(request.offsets[0]));
  incoming_.append(request.texts, request.text_bytes);
  if (incoming_.size() < total) return absl::OkStatus();
  std::optional<Problem>& graph = graphs_[request.graph];
  graph.reset();
  ASSIGN_OR_RETURN(graph, GraphFromBytes(std::exchange(incoming_, ""), registry));
  return absl::OkStatus();
}

absl::StatusOr<Problem> GraphShelf::Find(const RunRequest& request) const {
  if (request.graph < 0 || request.graph >= kGraphsMax || !graphs_[request.graph].has_value())
    return InvalidField("a graph's number", request.graph);
  return *graphs_[request.graph];
}

absl::Status CheckReply(const RunReply& reply) {
  if (reply.failed_step < -1 || reply.failed_step >= kGraphStepsMax)
    return InvalidField("a step", reply.failed_step);
  if (reply.step_count < 0 || reply.step_count > kGraphStepsMax)
    return InvalidField("a number of steps", reply.step_count);
  RETURN_IF_ERROR(CheckStep(reply.launch, reply.kernel_ns));
  for (int i = 0; i < reply.step_count; ++i)
    RETURN_IF_ERROR(CheckStep(reply.steps[i].launch, reply.steps[i].kernel_ns));
  if (static_cast<int>(reply.reject_reason) >= kRejectReasonCount)
    return InvalidField("a reason", static_cast<int>(reply.reject_reason));
  for (const int64_t value : {reply.h2d_ns, reply.d2h_ns, reply.device_ns, reply.memory.total_bytes,
                              reply.memory.used_bytes, reply.memory.reserved_bytes})
    if (value < 0) return InvalidField("a time or a size", value);
  for (const int64_t count : reply.errors)
    if (count < 0) return InvalidField("a number of errors", count);
  for (const int64_t count : reply.compile_counts.fields)
    if (count < 0 || count > kCompileCountMax)
      return InvalidField("a number of the compiler's", count);
  for (const int64_t count : reply.compile_counts.compilations)
    if (count < 0 || count > kCompileCountMax)
      return InvalidField("a number of compilations", count);
  if (reply.pushback_ms < kNeverRetry) return InvalidField("a pushback", reply.pushback_ms);
  return absl::OkStatus();
}

}  // namespace warpcall::worker
