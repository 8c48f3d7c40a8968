#include "server/inspect/operand_sets.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/status_macros.h"
#include "server/inspect/fill.h"

namespace warpcall::inspect {
namespace {

// Twice the cache evicts a CPU's least recently used sets; GPUs place lines by a hash and keep some
// longer.
constexpr int64_t kCpuCachesPassed = 2;
constexpr int64_t kGpuCachesPassed = 5;
constexpr int64_t kMemoryShare = 8;

// 0xFF in every byte is NaN in every data type.
constexpr char kPoisonByte = '\xFF';
constexpr size_t kPieceBytes = size_t{1} << 20;

constexpr int64_t kAlignment = kOperandAlignmentBytes;

}  // namespace

int64_t CacheBytes(const DeviceProperties& device) {
  if (device.kind != DeviceKind::kCpu) return device.l2_bytes;
  return std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), device.l2_bytes);
}

absl::StatusOr<Buffer> AllocateHost(size_t bytes) {
  constexpr std::align_val_t kAlign{kOperandAlignmentBytes};
  if (bytes == 0) return Buffer();
  void* const memory = ::operator new(bytes, kAlign, std::nothrow);
  if (memory == nullptr)
    return absl::ResourceExhaustedError(
        absl::StrCat("the host refused ", bytes, " bytes of memory for operands"));
  return Buffer(
      memory, bytes, [](void*, void* data, size_t) { ::operator delete(data, kAlign); }, nullptr);
}

OperandLayout::OperandLayout(const Problem& problem)
    : input_count(problem.inputs.size()), bytes(0) {
  const auto add = [&](const TensorSpec& spec) {
    const auto tensor_bytes = static_cast<int64_t>(spec.bytes());
    offsets.push_back(tensor_bytes == 0 ? -1 : bytes);
    bytes =
        SaturatingMultiply(CeilDivide(SaturatingAdd(bytes, tensor_bytes), kAlignment), kAlignment);
  };
  for (const TensorSpec& spec : problem.inputs) add(spec);
  for (const TensorSpec& spec : problem.outputs) add(spec);
}

Operands OperandLayout::At(char* base) const {
  Operands operands;
  for (size_t i = 0; i < offsets.size(); ++i) {
    char* const data = offsets[i] < 0 ? nullptr : base + offsets[i];
    if (i < input_count) {
      operands.inputs.push_back(data);
    } else {
      operands.outputs.push_back(data);
    }
  }
  return operands;
}

int64_t SetsFor(int64_t set_bytes, const DeviceProperties& device) {
  if (set_bytes == 0) return 1;
  const int64_t passed =
      CacheBytes(device) * (device.kind == DeviceKind::kCpu ? kCpuCachesPassed : kGpuCachesPassed);
  const int64_t limit = device.kind == DeviceKind::kCpu ? kCpuSetsBytesMax : kSetsBytesMax;
  const int64_t bytes_max = std::min(limit, device.memory_bytes / kMemoryShare);
  const int64_t wanted = std::min(CeilDivide(passed, set_bytes) + 1, bytes_max / set_bytes);
  return std::clamp<int64_t>(wanted, 1, kSetsMax);
}

absl::Status RunPhase(Stream* stream, Milestone end, absl::FunctionRef<absl::Status()> enqueue) {
  const auto run = [&]() -> absl::Status {
    RETURN_IF_ERROR(stream->Begin(1));
    for (const Milestone milestone : {Milestone::kStart, Milestone::kInputsReady,
                                      Milestone::kKernelDone, Milestone::kOutputsReady}) {
      if (milestone == end) RETURN_IF_ERROR(enqueue());
      RETURN_IF_ERROR(stream->Mark(milestone));
    }
    return absl::OkStatus();
  };
  absl::Status status = run();
  // Also after an error: work enqueued before it may still touch memory that is released next.
  status.Update(stream->Synchronize());
  return status;
}

OperandSets::OperandSets(const Problem& problem, Stream* stream)
    : problem_(&problem), layout_(problem), stream_(stream) {}

absl::StatusOr<OperandSets> OperandSets::Create(const Plan& plan, const DeviceProperties& device,
                                                Stream* stream, cpu::ThreadPool* pool) {
  OperandSets sets(*plan.problem, stream);
  RETURN_IF_ERROR(sets.Allocate(plan.sets));
  RETURN_IF_ERROR(sets.PlaceHost(device.kind == DeviceKind::kCpu));
  sets.FillHost(plan, *pool);
  RETURN_IF_ERROR(sets.CopyInputs());
  // So that no launch is the first to touch a page.
  const auto touch = [&]() -> absl::Status {
    for (const Operands& set : sets.sets_)
      for (size_t i = 0; i < set.outputs.size(); ++i)
        RETURN_IF_ERROR(sets.EnqueuePoison(set, i, {0, plan.problem->outputs[i].elements()}));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunPhase(stream, Milestone::kInputsReady, touch));
  return sets;
}

absl::Status OperandSets::Allocate(int64_t sets) {
  for (int64_t i = 0; i < sets; ++i) {
    absl::StatusOr<Buffer> memory = stream_->AllocateMemory(static_cast<size_t>(layout_.bytes));
    if (absl::IsResourceExhausted(memory.status()) && i > 0) break;
    if (!memory.ok()) return memory.status();
    sets_.push_back(layout_.At(static_cast<char*>(memory->data())));
    memory_.push_back(*std::move(memory));
  }
  return absl::OkStatus();
}

absl::Status OperandSets::PlaceHost(bool device_is_host) {
  host_ = sets_[0];
  if (device_is_host) return absl::OkStatus();
  ASSIGN_OR_RETURN(host_memory_, AllocateHost(static_cast<size_t>(layout_.bytes)));
  host_ = layout_.At(static_cast<char*>(host_memory_.data()));
  return absl::OkStatus();
}

void OperandSets::FillHost(const Plan& plan, cpu::ThreadPool& pool) {
  for (size_t i = 0; i < host_.inputs.size(); ++i) {
    const TensorSpec& spec = problem_->inputs[i];
    const int64_t elements = std::min(spec.elements(), plan.period);
    char* const data = static_cast<char*>(const_cast<void*>(host_.inputs[i]));
    Fill({spec.data_type, {elements}}, NormalSequence(plan.seed, static_cast<int>(i)), pool, data);
    const auto filled =
        static_cast<int64_t>(static_cast<size_t>(elements) * ElementBytes(spec.data_type));
    const auto bytes = static_cast<int64_t>(spec.bytes());
    if (filled == bytes) continue;
    pool.ParallelFor(CeilDivide(bytes, filled) - 1, 1, [&](int64_t begin, int64_t end) {
      for (int64_t copy = begin + 1; copy <= end; ++copy)
        std::memcpy(data + copy * filled, data, std::min(filled, bytes - copy * filled));
    });
  }
}

absl::Status OperandSets::CopyInputs() {
  return RunPhase(stream_, Milestone::kInputsReady, [&]() -> absl::Status {
    for (const Operands& set : sets_)
      for (size_t i = 0; i < set.inputs.size(); ++i) {
        if (set.inputs[i] == host_.inputs[i]) continue;
        RETURN_IF_ERROR(stream_->CopyToDevice(const_cast<void*>(set.inputs[i]), host_.inputs[i],
                                              problem_->inputs[i].bytes()));
      }
    return absl::OkStatus();
  });
}

absl::Status OperandSets::EnqueuePoison(const Operands& set, size_t output,
                                        const ElementRange& range) {
  static const std::string& poison = *new std::string(kPieceBytes, kPoisonByte);
  const size_t element_bytes = ElementBytes(problem_->outputs[output].data_type);
  const size_t begin = static_cast<size_t>(range.first) * element_bytes;
  const size_t end = static_cast<size_t>(range.last) * element_bytes;
  return EnqueuePieces(poison, static_cast<char*>(set.outputs[output]) + begin, end - begin);
}

// Copies `piece` again and again.
absl::Status OperandSets::EnqueuePieces(absl::Span<const char> piece, char* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += piece.size())
    RETURN_IF_ERROR(
        stream_->CopyToDevice(to + at, piece.data(), std::min(piece.size(), bytes - at)));
  return absl::OkStatus();
}

absl::Status OperandSets::EnqueueRenewal(int64_t set, absl::Span<const void* const> inputs,
                                         absl::Span<const char> remains) {
  const Operands& operands = sets_[static_cast<size_t>(set)];
  for (size_t i = 0; i < inputs.size(); ++i)
    if (operands.inputs[i] != nullptr)
      RETURN_IF_ERROR(stream_->CopyToDevice(const_cast<void*>(operands.inputs[i]), inputs[i],
                                            problem_->inputs[i].bytes()));
  for (size_t i = 0; i < operands.outputs.size(); ++i)
    RETURN_IF_ERROR(EnqueuePieces(remains, static_cast<char*>(operands.outputs[i]),
                                  problem_->outputs[i].bytes()));
  return absl::OkStatus();
}

absl::StatusOr<char*> OperandSets::Keep(const void* host, size_t bytes) {
  ASSIGN_OR_RETURN(Buffer memory, stream_->AllocateMemory(bytes));
  if (host != nullptr)
    RETURN_IF_ERROR(RunPhase(stream_, Milestone::kInputsReady,
                             [&] { return stream_->CopyToDevice(memory.data(), host, bytes); }));
  return static_cast<char*>(kept_.emplace_back(std::move(memory)).data());
}

absl::Status OperandSets::ReadOutputOf(int64_t set, void* host) {
  return RunPhase(stream_, Milestone::kOutputsReady, [&] {
    return stream_->CopyToStaging(host, sets_[static_cast<size_t>(set)].outputs[0],
                                  problem_->outputs[0].bytes());
  });
}

absl::Status OperandSets::Poison(absl::Span<const ElementRange> ranges) {
  return RunPhase(stream_, Milestone::kInputsReady, [&]() -> absl::Status {
    for (const ElementRange& range : ranges) RETURN_IF_ERROR(EnqueuePoison(sets_[0], 0, range));
    return absl::OkStatus();
  });
}

absl::Status OperandSets::ReadOutput(absl::Span<const ElementRange> ranges) {
  if (host_memory_.data() == nullptr) return absl::OkStatus();
  const size_t element_bytes = ElementBytes(problem_->outputs[0].data_type);
  return RunPhase(stream_, Milestone::kOutputsReady, [&]() -> absl::Status {
    for (const ElementRange& range : ranges) {
      const size_t begin = static_cast<size_t>(range.first) * element_bytes;
      const size_t bytes = static_cast<size_t>(range.last) * element_bytes - begin;
      RETURN_IF_ERROR(stream_->CopyToStaging(static_cast<char*>(host_.outputs[0]) + begin,
                                             static_cast<char*>(sets_[0].outputs[0]) + begin,
                                             bytes));
    }
    return absl::OkStatus();
  });
}

}  // namespace warpcall::inspect
