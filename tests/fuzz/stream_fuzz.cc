// A header, then messages, most of them chunks that the input describes and some of any bytes. A
// model knows which bytes have come, and so which chunk must be refused; when all have, the output
// must have the bits of Execute's.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/chunk.h"
#include "server/log.h"
#include "server/transport/stream_request.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/stream_server.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

constexpr int kMessagesMax = 200;
constexpr int64_t kInputBytesMax = 128 << 10;

// All give each part the bits that it has in the whole.
constexpr struct {
  const char* kernel;
  const char* implementation;
} kRows[] = {{"identity", "plain_copy"},    {"identity", "element_loop"},
             {"identity", "parallel_copy"}, {"gelu", "simd_fused"},
             {"gelu", "chain_of_loops"},    {"softmax", "simd_rows"},
             {"softmax", "chain_of_loops"}, {"matmul", "simd_tiled"}};
constexpr int64_t kOddDims[] = {-1, int64_t{1} << 40, std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};

v1::ExecuteRequest MakeHeader(FuzzInput* decisions) {
  v1::ExecuteRequest header;
  const auto& row = kRows[decisions->Byte() % std::size(kRows)];
  header.set_kernel(row.kernel);
  header.set_implementation(row.implementation);
  const auto type = static_cast<v1::DataType>(1 + decisions->Byte() % kDataTypeCount);
  const int inputs = header.kernel() == "matmul" ? 2 : 1;
  for (int i = 0; i < inputs; ++i) {
    v1::Tensor* const input = header.add_inputs();
    input->set_data_type(type);
    const int rank = decisions->Byte() % 5;
    for (int k = 0; k < rank; ++k) {
      const uint8_t dim = decisions->Byte();
      const int small = rank == 1 ? dim * 8 : dim % (rank == 2 ? 50 : 12);
      input->add_shape(dim >= 252 ? kOddDims[dim - 252] : small);
    }
  }
  return header;
}

// -1 for more than a run can send.
int64_t BytesOf(const v1::Tensor& input) {
  auto bytes = static_cast<int64_t>(ElementBytes(static_cast<DataType>(input.data_type())));
  for (const int64_t dim : input.shape())
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes) || bytes > kInputBytesMax) return -1;
  return bytes;
}

// Tracks the bytes of each input that have come. By default, chunks carry the model's own bytes.
class Model {
 public:
  explicit Model(const v1::ExecuteRequest& header) : whole_(header) {
    for (const v1::Tensor& input : header.inputs())
      came_.emplace_back(static_cast<size_t>(BytesOf(input)), false);
    for (size_t i = 0; i < came_.size(); ++i) {
      std::string* const data = whole_.mutable_inputs(static_cast<int>(i))->mutable_data();
      // Numbers around 1 of either sign in every type, and no two neighbours alike.
      for (size_t k = 0; k < came_[i].size(); ++k)
        data->push_back(
            static_cast<char>(k % 2 == 1 ? 0x3C + 0x40 * (k / 2 % 2) : 37 * k + 11 * i));
    }
  }

  size_t inputs() const { return came_.size(); }
  int64_t bytes(size_t input) const { return static_cast<int64_t>(came_[input].size()); }
  // Byte of `input` that has not come.
  int64_t Gap(size_t input) const {
    return std::find(came_[input].begin(), came_[input].end(), false) - came_[input].begin();
  }
  std::string Data(size_t input, int64_t offset, int64_t bytes) const {
    if (input >= inputs() || offset < 0 || offset > this->bytes(input))
      return std::string(static_cast<size_t>(bytes), 'x');
    std::string data = whole_.inputs(static_cast<int>(input))
                           .data()
                           .substr(static_cast<size_t>(offset), static_cast<size_t>(bytes));
    data.resize(static_cast<size_t>(bytes), 'x');
    return data;
  }
  bool Complete() const {
    for (size_t i = 0; i < inputs(); ++i)
      if (Gap(i) != bytes(i)) return false;
    return true;
  }
  // Returns true if the chunk may come, and adds it.
  bool Add(const v1::Chunk& chunk) {
    if (chunk.input_index() < 0 || static_cast<size_t>(chunk.input_index()) >= inputs())
      return false;
    std::vector<bool>& came = came_[static_cast<size_t>(chunk.input_index())];
    const auto room = static_cast<int64_t>(came.size());
    const auto size = static_cast<int64_t>(chunk.data().size());
    if (chunk.offset() < 0 || chunk.offset() > room || size > room - chunk.offset()) return false;
    const auto first = came.begin() + chunk.offset();
    if (std::find(first, first + size, true) != first + size) return false;
    std::fill(first, first + size, true);
    whole_.mutable_inputs(chunk.input_index())
        ->mutable_data()
        ->replace(static_cast<size_t>(chunk.offset()), chunk.data().size(), chunk.data());
    return true;
  }
  const v1::ExecuteRequest& whole() const { return whole_; }

 private:
  v1::ExecuteRequest whole_;
  std::vector<std::vector<bool>> came_;
};

class StreamRun {
 public:
  StreamRun(StreamServer* server, const v1::ExecuteRequest& header)
      : server_(*server),
        header_(header),
        request_(server->deps(), &context_, ConnectionPrincipal("fuzz")) {}

  std::string Run(FuzzInput* decisions) {
    const std::string bytes = header_.SerializeAsString();
    const Slices slices = Sliced(bytes, decisions->Byte());
    wire::FragmentedBytes header;
    for (const wire::Bytes piece : BytesOfAll(slices)) header.Append(piece);
    absl::Status status = request_.Open(header);
    std::string wrong = status.ok() ? Feed(decisions, &status) : CheckRefusedHeader(status);
    request_.End(status);
    return wrong;
  }

 private:
  std::string Feed(FuzzInput* decisions, absl::Status* status) {
    *status = absl::CancelledError("the end of the input");
    if (IsGiant()) return "";  // may be streamed, but not here
    Model model(header_);
    v1::ExecuteResponse answer;
    request_.DescribeOutputs(&answer);
    for (int i = 0; i < kMessagesMax && !decisions->empty(); ++i) {
      bool refused = false;
      std::string wrong = FeedMessage(decisions, &model, &refused);
      if (!wrong.empty() || refused) return wrong;
    }
    if (std::string wrong = RunWindows(); !wrong.empty()) return wrong;
    const bool complete = request_.CheckComplete().ok();
    if (complete != model.Complete() || complete != request_.AllRan())
      return absl::StrCat("complete: ", complete, ", by the model: ", model.Complete(),
                          ", all windows ran: ", request_.AllRan());
    if (!complete) return "";
    *status = absl::OkStatus();
    const absl::StatusOr<std::string> expected = server_.Execute(model.whole());
    if (!expected.ok()) return absl::StrCat("Execute: ", expected.status().ToString());
    return output_ == *expected ? "" : "other bits than Execute's";
  }

  bool IsGiant() const {
    return std::any_of(header_.inputs().begin(), header_.inputs().end(),
                       [](const v1::Tensor& input) { return BytesOf(input) < 0; });
  }

  // A header that is refused is one of Execute's that is, but that this wants data.
  std::string CheckRefusedHeader(const absl::Status& status) {
    v1::ExecuteRequest whole = header_;
    if (absl::IsResourceExhausted(status) && IsGiant()) return "";  // Execute would lack its data
    for (v1::Tensor& input : *whole.mutable_inputs())
      input.set_data(std::string(static_cast<size_t>(std::max<int64_t>(BytesOf(input), 0)), '\0'));
    const absl::Status expected = server_.Execute(whole).status();
    return expected.code() == status.code()
               ? ""
               : absl::StrCat("a stream: ", status.ToString(), "; Execute: ", expected.ToString());
  }

  static std::string MakeMessage(FuzzInput* decisions, const Model& model) {
    const uint8_t kind = decisions->Byte();
    if (kind % 8 == 0) return std::string(decisions->Take(kind / 2));
    v1::ExecuteStreamRequest message;
    v1::Chunk& chunk = *message.mutable_chunk();
    const size_t input = kind / 8 % 4 < model.inputs() ? kind / 8 % 4 : 0;
    chunk.set_input_index(kind / 32 == 7 ? static_cast<int8_t>(decisions->Byte())
                                         : static_cast<int32_t>(input));
    int64_t bytes = decisions->Byte();
    if (kind % 8 >= 6) bytes *= 16;
    int64_t offset = model.Gap(input);
    if (kind % 2 == 1) offset += static_cast<int16_t>(decisions->Number(2));
    if (kind % 8 < 4)
      bytes = std::clamp<int64_t>(bytes, 0, std::max<int64_t>(0, model.bytes(input) - offset));
    chunk.set_offset(offset);
    chunk.set_data(model.Data(static_cast<size_t>(chunk.input_index()), offset, bytes));
    return message.SerializeAsString();
  }

  std::string FeedMessage(FuzzInput* decisions, Model* model, bool* refused) {
    const uint8_t seed = decisions->Byte();
    const std::string bytes = MakeMessage(decisions, *model);
    const Slices slices = Sliced(bytes, seed % 16);
    v1::ExecuteStreamRequest expected;
    const bool readable = expected.ParseFromString(bytes);
    wire::StreamMessage message;
    wire::ChunkView chunk;
    absl::Status status = wire::SplitStreamRequest(BytesOfAll(slices), &message);
    const bool is_chunk = status.ok() && message.member == wire::StreamMember::kChunk;
    if (is_chunk) status = wire::ParseChunk(message.payload.pieces, &chunk);
    if (readable && (!status.ok() || is_chunk != expected.has_chunk()))
      return absl::StrCat("protobuf reads the message; as a chunk: ", status.ToString());
    *refused = !readable || !is_chunk;  // the call checks what lies deeper
    if (*refused) return "";
    status = request_.Add(chunk, slices);
    *refused = !status.ok();
    if (status.ok() != model->Add(expected.chunk()))
      return absl::StrCat(expected.chunk().data().size(), " bytes at offset ",
                          expected.chunk().offset(), ": ", status.ToString());
    if (!status.ok()) return absl::IsInvalidArgument(status) ? "" : status.ToString();
    if (const absl::Status held = request_.CheckHeld(); !held.ok()) return held.ToString();
    return seed >= 128 ? RunWindows() : "";
  }

  std::string RunWindows() {
    while (std::unique_ptr<Window> window = request_.TakeWindow()) {
      const absl::StatusOr<std::string> output = server_.Run(request_.JobOf(window.get()));
      if (!output.ok())
        return absl::StrCat("window ", window->index, ": ", output.status().ToString());
      if (request_.OutputOffset(*window, 0) != static_cast<int64_t>(output_.size()))
        return absl::StrCat("window ", window->index, " begins at ",
                            request_.OutputOffset(*window, 0), " of ", output_.size());
      absl::StrAppend(&output_, *output);
      request_.NoteRan(*window);
    }
    return "";
  }

  StreamServer& server_;
  const v1::ExecuteRequest header_;
  grpc::CallbackServerContext context_;
  StreamRequest request_;
  std::string output_;
};

}  // namespace

std::string FuzzStream(absl::string_view input) {
  static auto* const server = new StreamServer;
  SetLogLevel(LogLevel::kError);
  const google::protobuf::LogSilencer silencer;
  FuzzInput decisions(input);
  server->deps()->limits.stream_window_bytes = int64_t{1} << (4 + decisions.Byte() % 10);
  return StreamRun(server, MakeHeader(&decisions)).Run(&decisions);
}

}  // namespace warpcall::testing
