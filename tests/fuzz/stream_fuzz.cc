// A header, then messages, most of them chunks that the input describes and some of any bytes. A
// model knows which bytes have come, and so which chunk must be refused; when all have, the output
// must have the bits of Execute's.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/chunk.h"
#include "server/log/log.h"
#include "server/transport/stream_request.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/stream_model.h"
#include "tests/fuzz/stream_server.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

constexpr int kMessagesMax = 200;

// All give each part the bits that it has in the whole.
constexpr struct {
  const char* kernel;
  const char* implementation;
} kRows[] = {{"identity", "plain_copy"},    {"identity", "element_loop"},
             {"identity", "parallel_copy"}, {"gelu", "simd_fused"},
             {"gelu", "chain_of_loops"},    {"softmax", "simd_rows"},
             {"softmax", "chain_of_loops"}, {"matmul", "simd_tiled"}};

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
    ReadShape(decisions, input);
  }
  return header;
}

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
    StreamModel model(header_);
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
                       [](const v1::Tensor& input) { return SendableBytes(input) < 0; });
  }

  // A header that is refused is one of Execute's that is, but that this wants data.
  std::string CheckRefusedHeader(const absl::Status& status) {
    v1::ExecuteRequest whole = header_;
    if (absl::IsResourceExhausted(status) && IsGiant()) return "";  // Execute would lack its data
    for (v1::Tensor& input : *whole.mutable_inputs())
      input.set_data(
          std::string(static_cast<size_t>(std::max<int64_t>(SendableBytes(input), 0)), '\0'));
    const absl::Status expected = server_.Execute(whole).status();
    return expected.code() == status.code()
               ? ""
               : absl::StrCat("a stream: ", status.ToString(), "; Execute: ", expected.ToString());
  }

  std::string FeedMessage(FuzzInput* decisions, StreamModel* model, bool* refused) {
    const uint8_t seed = decisions->Byte();
    const std::string bytes = MakeStreamMessage(decisions, *model);
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
      request_.RecordRan(*window);
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
