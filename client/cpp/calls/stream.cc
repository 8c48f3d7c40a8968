#include "client/cpp/calls/stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/codec/values.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// Chunks begin on multiples of this, so that none cuts an element or a cache line in two.
constexpr int64_t kChunkAlignmentBytes = 256;

}  // namespace

absl::Status CheckBytes(absl::string_view name, const Tensor& tensor) {
  ASSIGN_OR_RETURN(const int64_t bytes, ByteCount(tensor.data_type(), tensor.shape()));
  if (static_cast<size_t>(bytes) == tensor.data().size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": ", tensor.data().size(), " bytes of data, but ", DataTypeName(tensor.data_type()),
      "[", absl::StrJoin(tensor.shape(), ","), "] takes ", bytes));
}

absl::Status MemoryIo::Check(const Call& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (!call.inputs[i].is_resident())
      RETURN_IF_ERROR(CheckBytes(absl::StrCat("input ", i), call.inputs[i]));
  return absl::OkStatus();
}

absl::StatusOr<Piece> MemoryIo::Read(size_t input, int64_t offset, int64_t bytes) {
  WARPCALL_CHECK(input < call_.inputs.size(), input, call_.inputs.size());
  const Tensor& tensor = call_.inputs[input];
  WARPCALL_CHECK(
      offset >= 0 && bytes >= 0 &&
          static_cast<size_t>(offset) + static_cast<size_t>(bytes) <= tensor.data().size(),
      offset, bytes, tensor.data().size());
  return Piece{tensor.data().subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes)),
               tensor.owner() == nullptr ? borrowed_.owner() : tensor.owner()};
}

absl::Status MemoryIo::Begin(const std::vector<TensorSpec>& outputs) {
  ASSIGN_OR_RETURN(outputs_, OutputBuffers::Allocate(outputs, call_.destinations));
  return absl::OkStatus();
}

absl::Status MemoryIo::Write(size_t output, int64_t offset, const wire::FragmentedBytes& bytes) {
  bytes.CopyTo(outputs_.data(output) + offset);
  return absl::OkStatus();
}

absl::StatusOr<Piece> CallbackIo::Read(size_t input, int64_t offset, int64_t bytes) {
  const auto count = static_cast<size_t>(bytes);
  std::shared_ptr<char[]> memory = AllocateBytes(count);
  if (memory == nullptr)
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory here for a chunk of ", bytes, " bytes"));
  RETURN_IF_ERROR(call_.read(input, offset, absl::MakeSpan(memory.get(), count)));
  return Piece{{memory.get(), count}, memory};
}

absl::Status CallbackIo::Begin(const std::vector<TensorSpec>& outputs) {
  return call_.begin == nullptr ? absl::OkStatus() : call_.begin(outputs);
}

absl::Status CallbackIo::Write(size_t output, int64_t offset, const wire::FragmentedBytes& bytes) {
  for (const wire::Bytes& piece : bytes.pieces) {
    RETURN_IF_ERROR(call_.write(output, offset, piece));
    offset += static_cast<int64_t>(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExecuteStreamSession>> ExecuteStreamSession::Make(
    const StreamCall& call, int64_t chunk_bytes, TensorIo* io) {
  std::vector<Side> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool is_resident = i < call.handles.size() && !call.handles[i].empty();
    const TensorSpec& spec = call.inputs[i];
    ASSIGN_OR_RETURN(const int64_t bytes, is_resident ? 0 : ByteCount(spec.data_type, spec.shape));
    inputs.push_back(
        {.bytes = bytes, .elements = bytes / static_cast<int64_t>(ElementBytes(spec.data_type))});
  }
  std::unique_ptr<ExecuteStreamSession> session(
      new ExecuteStreamSession(EncodeStreamHeader(call), std::move(inputs), chunk_bytes, io));
  session->keeps_outputs_ = call.options.keep_outputs;
  return session;
}

ExecuteStreamSession::ExecuteStreamSession(std::string header, std::vector<Side> inputs,
                                           int64_t chunk_bytes, TensorIo* io)
    : io_(io),
      header_(std::move(header)),
      chunk_bytes_(chunk_bytes / kChunkAlignmentBytes * kChunkAlignmentBytes),
      inputs_(std::move(inputs)) {
  WARPCALL_DCHECK(chunk_bytes_ > 0, chunk_bytes);
}

absl::StatusOr<std::vector<Piece>> ExecuteStreamSession::NextMessage() {
  if (!std::exchange(header_sent_, true)) return std::vector<Piece>{OwnedPiece(header_)};
  // The server computes a part once every input has sent it, and buffers little until then. So of
  // inputs with equally many elements, the one with the smallest share sent comes next. Inputs with
  // fewer elements are shared by all parts, or nothing is divided: they come first.
  const auto order = [](const Side& side) {
    return std::pair(side.elements,
                     static_cast<double>(side.sent) / static_cast<double>(side.bytes));
  };
  size_t next = inputs_.size();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].sent == inputs_[i].bytes) continue;
    if (next == inputs_.size() || order(inputs_[i]) < order(inputs_[next])) next = i;
  }
  if (next == inputs_.size()) return std::vector<Piece>{};
  Side& input = inputs_[next];
  WARPCALL_DCHECK(input.sent < input.bytes, input.sent, input.bytes);
  const int64_t bytes = std::min(chunk_bytes_, input.bytes - input.sent);
  ASSIGN_OR_RETURN(Piece data, io_->Read(next, input.sent, bytes));
  std::string prefix;
  wire::AppendChunkPrefix({static_cast<int32_t>(next), input.sent, data.bytes.size()}, &prefix);
  input.sent += bytes;
  return std::vector<Piece>{OwnedPiece(std::move(prefix)), std::move(data)};
}

absl::Status ExecuteStreamSession::HandleMessage(Fragments message) {
  wire::StreamMessage split;
  if (const absl::Status status = wire::SplitStreamResponse(message, &split); !status.ok())
    return BadResponse(status.message());
  if (split.member == wire::StreamMember::kNone) return absl::OkStatus();  // from a later version
  if (result_.has_value()) return BadResponse("a message after the end of the answer");
  const bool is_header = split.member == wire::StreamMember::kHeader;
  if (is_header == header_came_)
    return BadResponse(is_header ? "a second header" : "chunks before the header");
  switch (split.member) {
    case wire::StreamMember::kHeader:
      return HandleHeader(split.payload.pieces);
    case wire::StreamMember::kChunk:
      return HandleChunk(split.payload.pieces);
    default:
      return HandleDone(split.payload.pieces);
  }
}

absl::Status ExecuteStreamSession::HandleHeader(Fragments header) {
  ASSIGN_OR_RETURN(const std::vector<TensorSpec> outputs, DecodeStreamHeader(header));
  header_came_ = true;
  if (keeps_outputs_) return absl::OkStatus();  // no bytes of them come
  RETURN_IF_ERROR(outputs_.Expect(outputs));
  return io_->Begin(outputs);
}

absl::Status ExecuteStreamSession::HandleChunk(Fragments payload) {
  wire::ChunkView chunk;
  RETURN_IF_ERROR(outputs_.Add(payload, &chunk));
  return io_->Write(static_cast<size_t>(chunk.input_index), chunk.offset, chunk.data);
}

absl::Status ExecuteStreamSession::HandleDone(Fragments done) {
  RETURN_IF_ERROR(outputs_.CheckComplete());
  ASSIGN_OR_RETURN(result_, DecodeStreamEnd(done));
  if (keeps_outputs_ && result_->outputs.empty())
    return BadResponse("no handles of the outputs that were to stay");
  return absl::OkStatus();
}

absl::StatusOr<Result> ExecuteStreamSession::TakeResult() {
  if (!result_.has_value()) return BadResponse("the stream ended before the answer did");
  return *std::move(result_);
}

}  // namespace warpcall::client
