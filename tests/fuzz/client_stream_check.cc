#include "tests/fuzz/client_stream_check.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/calls/stream.h"
#include "tests/proto/fragments.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kOutputBytesMax = 64 << 10;
constexpr int kMessagesMax = 64;

// Takes outputs up to a size, and notes which bytes come.
class RecordingIo final : public client::TensorIo {
 public:
  absl::StatusOr<client::Piece> Read(size_t, int64_t, int64_t) override {
    return absl::InternalError("nothing is sent");
  }
  absl::Status Begin(const std::vector<client::TensorSpec>& outputs) override {
    for (const client::TensorSpec& output : outputs) {
      const absl::StatusOr<int64_t> bytes = client::ByteCount(output.data_type, output.shape);
      if (!bytes.ok()) wrong = "an output without a size was announced";
      if (!bytes.ok() || *bytes > kOutputBytesMax) return absl::ResourceExhaustedError("large");
      came.emplace_back(static_cast<size_t>(*bytes), '\0');
    }
    return absl::OkStatus();
  }
  absl::Status Write(size_t output, int64_t offset, const wire::FragmentedBytes& bytes) override {
    if (output >= came.size() || offset < 0 ||
        static_cast<size_t>(offset) + bytes.size > came[output].size()) {
      wrong = absl::StrCat(bytes.size, " bytes at offset ", offset, " of output ", output);
      return absl::InternalError(wrong);
    }
    for (size_t i = 0; i < bytes.size; ++i)
      if (++came[output][static_cast<size_t>(offset) + i] != 1) wrong = "a byte came twice";
    return absl::OkStatus();
  }

  std::vector<std::string> came;  // 1 for each byte that did
  std::string wrong;
};

std::string Message(FuzzInput* decisions) {
  v1::ExecuteStreamResponse message;
  const uint8_t kind = decisions->Byte();
  switch (kind % 4) {
    case 0:
      return std::string(decisions->Take(kind / 4));
    case 1: {
      v1::Tensor* const output = message.mutable_header()->add_outputs();
      output->set_data_type(static_cast<v1::DataType>(kind / 4 % 5));
      for (int rank = decisions->Byte() % 4; rank > 0; --rank)
        output->add_shape(static_cast<int8_t>(decisions->Byte()));
      break;
    }
    case 2:
      message.mutable_chunk()->set_input_index(kind / 4 % 3);
      message.mutable_chunk()->set_offset(static_cast<int16_t>(decisions->Number(2)));
      message.mutable_chunk()->set_data(std::string(decisions->Byte(), 'd'));
      break;
    default:
      message.mutable_done()->set_device("d");
  }
  return message.SerializeAsString();
}

}  // namespace

std::string CheckClientStream(FuzzInput* decisions) {
  const client::StreamCall call;
  RecordingIo io;
  const auto session = client::ExecuteStreamSession::Make(call, 4096, &io);
  if (!session.ok()) return session.status().ToString();
  for (int i = 0; i < kMessagesMax && !decisions->empty(); ++i) {
    const uint8_t seed = decisions->Byte();
    const std::string message = Message(decisions);
    const Fragments fragments(message, seed);
    if (!(*session)->HandleMessage(fragments.spans()).ok()) return io.wrong;
  }
  if (!(*session)->TakeResult().ok()) return io.wrong;
  for (const std::string& output : io.came)
    if (output.find('\0') != std::string::npos) return "an answer lacks bytes";
  return io.wrong;
}

}  // namespace warpcall::testing
