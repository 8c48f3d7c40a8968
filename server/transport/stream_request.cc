#include "server/transport/stream_request.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"

namespace warpcall {
namespace {

// Limits on data held back because earlier bytes have not come. The number of pieces is free up to
// kHeldPiecesFree; beyond, each kHeldPieceBytesMin bytes allow one (ChunkAssembler gathers smaller
// pieces that follow each other).
constexpr int64_t kHeldBytesMax = 64 << 20;
constexpr int64_t kHeldPiecesFree = 4096;
constexpr int64_t kHeldPieceBytesMin = 256;
// Every window copies the shared inputs to the device again, so each has at least so many times as
// many bytes of its own.
constexpr int64_t kWindowPerSharedBytes = 4;
// But a window takes at most one part in so many of the staging that the shared inputs leave.
constexpr int64_t kStagingShare = 2;

int64_t BytesOf(const Problem& problem) {
  int64_t bytes = 0;
  const auto add = [&bytes](const TensorSpec& spec) {
    bytes = SaturatingAdd(bytes, static_cast<int64_t>(spec.bytes()));
  };
  absl::c_for_each(problem.inputs, add);
  absl::c_for_each(problem.outputs, add);
  return bytes;
}

// The slices of [data, data + size) among `slices`, which it lies in.
Slices Among(const wire::FragmentedBytes& data, const Slices& slices) {
  Slices found;
  size_t i = 0;
  for (const wire::Bytes& piece : data.pieces) {
    WARPCALL_CHECK(slices.size() > 0, piece.size());
    const auto* begin = reinterpret_cast<const uint8_t*>(piece.data());
    while (begin < slices[i].begin() || begin >= slices[i].end()) i = (i + 1) % slices.size();
    const auto offset = static_cast<size_t>(begin - slices[i].begin());
    WARPCALL_CHECK(piece.size() <= slices[i].size() - offset, piece.size(), offset);
    found.Add(slices[i].sub(offset, offset + piece.size()));
  }
  return found;
}

}  // namespace

absl::Status SplitStreamMessage(const grpc::ByteBuffer& bytes, Slices* slices,
                                wire::StreamMessage* message) {
  RETURN_IF_ERROR(DumpSlices(bytes, slices));
  std::vector<wire::Bytes> fragments;
  for (const grpc::Slice& slice : *slices) fragments.push_back(BytesOf(slice));
  return wire::SplitStreamRequest(fragments, message);
}

absl::Status StreamRequest::Open(const wire::FragmentedBytes& header) {
  RETURN_IF_ERROR(request_.Admit("ExecuteStream"));
  RETURN_IF_ERROR(header_.Decode(header.pieces));
  keep_terms_.ttl_ns = header_.header().keep_ttl_ns();
  return OpenHeader();
}

absl::Status StreamRequest::OpenPut(const TensorSpec& spec, const std::string& device,
                                    const Residents::Terms& terms) {
  v1::ExecuteRequest* const header = header_.mutable_header();
  header->set_kernel(kCopyKernel);
  header->set_device(device);
  header->set_keep_outputs(true);
  v1::Tensor* const input = header->add_inputs();
  input->set_data_type(static_cast<v1::DataType>(spec.data_type));
  input->mutable_shape()->Assign(spec.dims.begin(), spec.dims.end());
  keep_terms_ = terms;
  return OpenHeader();
}

absl::Status StreamRequest::OpenGet(const std::string& handle) {
  header_.mutable_header()->set_kernel(kCopyKernel);
  header_.mutable_header()->add_inputs()->set_handle(handle);
  return OpenHeader();
}

absl::Status StreamRequest::OpenHeader() {
  RETURN_IF_ERROR(header_.FindResidents(&deps_->engine->residents(), request_.caller()->name));
  CallSpec asked;
  ASSIGN_OR_RETURN(asked, header_.Spec());
  asked.keep_terms = keep_terms_;
  RETURN_IF_ERROR(request_.ReadKernel(std::move(asked)));
  ASSIGN_OR_RETURN(Problem problem, header_.ToProblem(*request_.kernel().op));
  request_.SetProblem(std::move(problem));
  for (size_t i = 0; i < header_.input_count(); ++i) {
    if (header_.data(i).size == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " (", request_.kernel().op->input_names[i], ") has ",
                     header_.data(i).size, " bytes of data in the header; they come in chunks"));
  }
  RETURN_IF_ERROR(CheckResidents());
  RETURN_IF_ERROR(Plan());
  // The last window may be smaller than the others, and a row may take only one of the sizes.
  const Problem sizes[] = {full_, last_};
  RETURN_IF_ERROR(request_.Choose(absl::MakeConstSpan(sizes, full_ == last_ ? 1 : 2)));
  chosen_row_ = request_.trace().row;
  // At most this many windows hold inputs and outputs at a time.
  RETURN_IF_ERROR(
      request_.Hold(SaturatingMultiply(std::min(windows_, kWindowsUnderWayMax), BytesOf(full_))));
  header_.ReleaseInputs();
  for (const TensorSpec& spec : request_.problem().inputs)
    inputs_.emplace_back(IsResident(inputs_.size()) ? 0 : static_cast<int64_t>(spec.bytes()));
  shared_.resize(inputs_.size());
  return absl::OkStatus();
}

// A client that has a tensor on the device and wants parts of it has no use for a stream.
absl::Status StreamRequest::CheckResidents() const {
  const Op& op = *request_.kernel().op;
  const Problem& problem = request_.problem();
  for (size_t i = 0; request_.kind() == Request::Kind::kKernel && i < problem.inputs.size(); ++i)
    if (IsResident(i) && PartsOf(op, problem) > 1 && RoleOf(op, problem, i) == OperandRole::kSplit)
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " (", op.input_names[i], ") is a handle, but each part of the ",
                       "problem has a piece of it; Execute takes it"));
  return absl::OkStatus();
}

int64_t StreamRequest::AlignedParts() const {
  const Problem& problem = request_.problem();
  size_t step = 1;
  size_t operand = 0;
  const auto add = [&](const TensorSpec& spec) {
    const bool split = RoleOf(*request_.kernel().op, problem, operand) == OperandRole::kSplit;
    const size_t bytes = spec.bytes() / static_cast<size_t>(parts_);
    const bool stays =
        IsResident(operand) || (request_.keeps_outputs() && operand >= problem.inputs.size());
    if (split && stays)
      step = std::max(step, kOperandAlignmentBytes / std::gcd(kOperandAlignmentBytes, bytes));
    ++operand;
  };
  absl::c_for_each(problem.inputs, add);
  absl::c_for_each(problem.outputs, add);
  return static_cast<int64_t>(step);
}

int64_t StreamRequest::PartsPerWindow() const {
  const Op& op = *request_.kernel().op;
  const Problem& problem = request_.problem();
  const auto shared = static_cast<int64_t>(BytesOf(op, problem, OperandRole::kShared));
  const int64_t part_bytes = (BytesOf(problem) - shared) / parts_;
  if (part_bytes == 0) return parts_;
  // However much is shared, a window is a request like any other, which has to fit.
  const int64_t window_bytes = std::min(std::max(deps_->limits.stream_window_bytes,
                                                 SaturatingMultiply(shared, kWindowPerSharedBytes)),
                                        (deps_->engine->staging_bytes() - shared) / kStagingShare);
  int64_t parts = window_bytes / part_bytes;
  size_t operand = 0;
  const auto fit = [&](const TensorSpec& spec) {
    const bool split = RoleOf(op, problem, operand++) == OperandRole::kSplit;
    const int64_t bytes = split ? static_cast<int64_t>(spec.bytes()) / parts_ : 0;
    if (bytes > 0) parts = std::min(parts, deps_->limits.message_bytes_max / bytes);
  };
  for (const TensorSpec& spec : problem.inputs) fit(spec);
  for (const TensorSpec& spec : problem.outputs) fit(spec);
  const int64_t step = AlignedParts();
  return std::clamp<int64_t>(parts / step * step, std::min(step, parts_), parts_);
}

absl::Status StreamRequest::Plan() {
  const Op& op = *request_.kernel().op;
  const Problem& problem = request_.problem();
  // Nothing to divide: one window of nothing.
  parts_ = std::max<int64_t>(PartsOf(op, problem), 1);
  parts_per_window_ = PartsPerWindow();
  windows_ = CeilDivide(parts_, parts_per_window_);
  WARPCALL_DCHECK(windows_ >= 1 && (windows_ - 1) * parts_per_window_ < parts_, windows_,
                  parts_per_window_, parts_);
  full_ = last_ = problem;
  const auto shared = static_cast<int64_t>(BytesOf(op, problem, OperandRole::kShared));
  if (windows_ > 1) {
    full_ = TakeParts(op, problem, parts_per_window_);
    last_ = TakeParts(op, problem, parts_ - (windows_ - 1) * parts_per_window_);
  }
  held_bytes_max_ = SaturatingAdd(BytesOf(full_), kHeldBytesMax);
  // A client that knows nothing of it sends what all windows share no sooner than the rest. That
  // may take as much as Execute of the same problem.
  if (shared > 0)
    held_bytes_max_ =
        std::max(held_bytes_max_, std::min(BytesOf(problem), deps_->limits.message_bytes_max));
  const std::string what = windows_ > 1 ? "one independent part, " : "a problem in one piece, ";
  for (const TensorSpec& spec : full_.inputs)
    RETURN_IF_ERROR(CheckMessageBytes(*deps_, absl::StrCat(what, ToString(spec), ","),
                                      static_cast<int64_t>(spec.bytes())));
  for (const TensorSpec& spec : full_.outputs)
    RETURN_IF_ERROR(CheckMessageBytes(*deps_, absl::StrCat(what, ToString(spec), ","),
                                      static_cast<int64_t>(spec.bytes())));
  return absl::OkStatus();
}

void StreamRequest::DescribeOutputs(v1::ExecuteResponse* response) {
  DescribeChoice(request_, response);
  for (const TensorSpec& spec : request_.problem().outputs) {
    v1::Tensor* tensor = response->add_outputs();
    tensor->set_data_type(static_cast<v1::DataType>(spec.data_type));
    for (const int64_t dim : spec.dims) tensor->add_shape(dim);
  }
}

absl::Status StreamRequest::Add(const wire::ChunkView& chunk, const Slices& slices) {
  if (chunk.input_index < 0 || static_cast<size_t>(chunk.input_index) >= inputs_.size())
    return absl::InvalidArgumentError(absl::StrCat("a chunk is for input ", chunk.input_index,
                                                   "; the kernel has ", inputs_.size(),
                                                   ", the first being 0"));
  if (const auto bytes = static_cast<int64_t>(chunk.data.size); bytes > kChunkBytesMax)
    return TooMuch(
        absl::StrCat("a chunk has ", bytes, " bytes of data; the limit is ", kChunkBytesMax));
  if (IsResident(static_cast<size_t>(chunk.input_index)))
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk is for input ", chunk.input_index, ", which is a handle"));
  ChunkAssembler& input = inputs_[static_cast<size_t>(chunk.input_index)];
  const int64_t gathered_bytes = input.gathered_bytes();
  const absl::Status status = input.Add(chunk.offset, Among(chunk.data, slices));
  request_.trace().copy_in_bytes += input.gathered_bytes() - gathered_bytes;
  received_bytes_ += static_cast<int64_t>(chunk.data.size);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("input ", chunk.input_index, ": ", status.message()));
}

absl::Status StreamRequest::CheckHeld() {
  int64_t held = 0;
  int64_t pieces = 0;
  for (const ChunkAssembler& input : inputs_) {
    held += input.held_bytes();
    pieces += input.held_pieces();
  }
  if (held > held_bytes_max_)
    return TooMuch(absl::StrCat(
        held, " bytes are held back because bytes before them are missing; the limit is ",
        held_bytes_max_, ": send chunks nearer to their order"));
  const int64_t pieces_max = kHeldPiecesFree + held / kHeldPieceBytesMin;
  if (pieces <= pieces_max) return absl::OkStatus();
  return TooMuch(absl::StrCat(held, " bytes are held in ", pieces, " pieces; the limit is ",
                              pieces_max, ": send larger chunks, or nearer to their order"));
}

int64_t StreamRequest::held_bytes() const {
  int64_t held = 0;
  for (const ChunkAssembler& input : inputs_) held += input.held_bytes();
  for (const Slices& slices : shared_)
    for (const grpc::Slice& slice : slices) held += static_cast<int64_t>(slice.size());
  return held;
}

absl::Status StreamRequest::Stalled() {
  return TooMuch(absl::StrCat(
      held_bytes(), " bytes, which came compressed, wait for bytes that are missing, of which ",
      "fewer than ", kStreamProgressBytes, " came in ",
      static_cast<double>(deps_->limits.send_ns_max) / 1e9, " s (send_seconds)"));
}

absl::Status StreamRequest::TooMuch(const std::string& what) {
  return RefuseFor(RejectReason::kMessageBytes, absl::ResourceExhaustedError(what), kNeverRetry);
}

absl::Status StreamRequest::CheckComplete() const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].complete_bytes() == inputs_[i].bytes()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the request ended too early: input ", i,
                                                   " lacks byte ", inputs_[i].complete_bytes(),
                                                   " of ", inputs_[i].bytes()));
  }
  return absl::OkStatus();
}

bool StreamRequest::IsShared(size_t input) const {
  return windows_ > 1 &&
         RoleOf(*request_.kernel().op, request_.problem(), input) == OperandRole::kShared;
}

Slices StreamRequest::TakeInput(size_t input, int64_t bytes) {
  WARPCALL_CHECK(input < inputs_.size(), input, inputs_.size());
  if (IsResident(input)) return {};
  if (!IsShared(input)) return inputs_[input].Take(bytes);
  if (windows_taken_ == 0) shared_[input] = inputs_[input].Take(bytes);
  if (windows_taken_ == windows_ - 1) return std::move(shared_[input]);
  return shared_[input];
}

std::unique_ptr<Window> StreamRequest::TakeWindow() {
  WARPCALL_DCHECK(windows_ran_ <= windows_taken_ && windows_taken_ <= windows_, windows_ran_,
                  windows_taken_, windows_);
  if (windows_taken_ == windows_) return nullptr;
  const Problem& problem = ProblemOf(windows_taken_);
  const auto bytes = [&](size_t i) { return static_cast<int64_t>(problem.inputs[i].bytes()); };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (IsResident(i)) continue;
    const int64_t begin =
        IsShared(i) ? 0 : windows_taken_ * static_cast<int64_t>(full_.inputs[i].bytes());
    if (inputs_[i].complete_bytes() < begin + bytes(i)) return nullptr;
  }
  auto window = std::make_unique<Window>();
  for (size_t i = 0; i < inputs_.size(); ++i) window->inputs.push_back(TakeInput(i, bytes(i)));
  window->index = windows_taken_++;
  window->first_part = window->index * parts_per_window_;
  window->problem = &problem;
  return window;
}

std::unique_ptr<Job> StreamRequest::JobOf(Window* window) {
  WARPCALL_DCHECK(window->problem != nullptr && window->inputs.size() == inputs_.size(),
                  window->index);
  const RequestTrace& trace = request_.trace();
  window->trace = RequestTrace();
  window->trace.kernel = trace.kernel;
  window->trace.row = trace.row;
  window->trace.auto_choice = trace.auto_choice;
  window->trace.device = trace.device;
  window->trace.data_type = trace.data_type;
  window->trace.work = request_.kernel().op->work(*window->problem);
  std::unique_ptr<Job> job = request_.NewJob(*window->problem);
  const Problem& whole = request_.problem();
  for (size_t i = 0; i < job->residents.size(); ++i)
    if (RoleOf(*job->op, whole, i) == OperandRole::kSplit)
      job->residents[i].offset = static_cast<size_t>(OffsetOf(
          *window, i < whole.inputs.size() ? whole.inputs[i].bytes()
                                           : whole.outputs[i - whole.inputs.size()].bytes()));
  // The row that took over the first window may not take a window of another size.
  if (!(*window->problem == ProblemOf(0))) {
    window->trace.row = chosen_row_;
    job->row = &deps_->registry->rows()[static_cast<size_t>(chosen_row_)];
  }
  job->key.id = deps_->calls.next_id.fetch_add(1, std::memory_order_relaxed);
  window->key = job->key;
  job->continues = AnyRan();
  job->trace = &window->trace;
  for (const Slices& slices : window->inputs) {
    InputPieces& pieces = job->inputs.emplace_back();
    for (const grpc::Slice& slice : slices) pieces.push_back(BytesOf(slice));
  }
  return job;
}

void StreamRequest::RecordRan(const Window& window) {
  RequestTrace& trace = request_.trace();
  const RequestTrace& part = window.trace;
  trace.queue_ns += part.queue_ns;
  trace.copy_in_ns += part.copy_in_ns;
  trace.h2d_ns += part.h2d_ns;
  trace.kernel_ns += part.kernel_ns;
  trace.d2h_ns += part.d2h_ns;
  trace.device_ns += part.device_ns;
  trace.copy_in_bytes += part.copy_in_bytes;
  trace.copy_out_bytes += part.copy_out_bytes;
  const int32_t gpu_kernels = trace.launch.gpu_kernels + part.launch.gpu_kernels;
  if (window.index == 0) {
    // Where its row refused it, others take it from there.
    trace.row = part.row;
    trace.auto_choice = part.auto_choice;
    trace.launch = part.launch;
  }
  trace.launch.gpu_kernels = gpu_kernels;
  WARPCALL_DCHECK(windows_ran_ < windows_taken_, window.index, windows_ran_, windows_taken_);
  trace.ran = ++windows_ran_ == windows_;
  request_.TracePart(part);
}

int64_t StreamRequest::OutputOffset(const Window& window, size_t output) const {
  WARPCALL_CHECK(output < request_.problem().outputs.size(), output);
  return OffsetOf(window, request_.problem().outputs[output].bytes());
}

int64_t StreamRequest::OffsetOf(const Window& window, size_t bytes) const {
  WARPCALL_CHECK(parts_ > 0, parts_);
  return static_cast<int64_t>(bytes) / parts_ * window.first_part;
}

absl::Status StreamRequest::Describe(v1::ExecuteResponse* response) {
  RETURN_IF_ERROR(request_.NameOutputs());
  warpcall::Describe(&request_, response);
  AddKept(request_, response);
  return absl::OkStatus();
}

}  // namespace warpcall
