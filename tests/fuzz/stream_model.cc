#include "tests/fuzz/stream_model.h"

#include <algorithm>
#include <limits>

#include "proto/common/data_type.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kInputBytesMax = 128 << 10;
constexpr int64_t kOddDims[] = {-1, int64_t{1} << 40, std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};

}  // namespace

void ReadShape(FuzzInput* decisions, v1::Tensor* tensor) {
  const int rank = decisions->Byte() % 5;
  for (int k = 0; k < rank; ++k) {
    const uint8_t dim = decisions->Byte();
    const int small = rank == 1 ? dim * 8 : dim % (rank == 2 ? 50 : 12);
    tensor->add_shape(dim >= 252 ? kOddDims[dim - 252] : small);
  }
}

int64_t SendableBytes(const v1::Tensor& tensor) {
  auto bytes = static_cast<int64_t>(ElementBytes(static_cast<DataType>(tensor.data_type())));
  for (const int64_t dim : tensor.shape())
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes) || bytes > kInputBytesMax) return -1;
  return bytes;
}

StreamModel::StreamModel(const v1::ExecuteRequest& header) : whole_(header) {
  for (const v1::Tensor& input : header.inputs())
    came_.emplace_back(static_cast<size_t>(SendableBytes(input)), false);
  for (size_t i = 0; i < came_.size(); ++i) {
    std::string* const data = whole_.mutable_inputs(static_cast<int>(i))->mutable_data();
    // Numbers around 1 of either sign in every type, and no two neighbours alike.
    for (size_t k = 0; k < came_[i].size(); ++k)
      data->push_back(static_cast<char>(k % 2 == 1 ? 0x3C + 0x40 * (k / 2 % 2) : 37 * k + 11 * i));
  }
}

int64_t StreamModel::CameBytes(size_t input) const {
  return std::count(came_[input].begin(), came_[input].end(), true);
}

int64_t StreamModel::Gap(size_t input) const {
  return std::find(came_[input].begin(), came_[input].end(), false) - came_[input].begin();
}

std::string StreamModel::Data(size_t input, int64_t offset, int64_t bytes) const {
  if (input >= inputs() || offset < 0 || offset > this->bytes(input))
    return std::string(static_cast<size_t>(bytes), 'x');
  std::string data = whole_.inputs(static_cast<int>(input))
                         .data()
                         .substr(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  data.resize(static_cast<size_t>(bytes), 'x');
  return data;
}

bool StreamModel::Complete() const {
  for (size_t i = 0; i < inputs(); ++i)
    if (Gap(i) != bytes(i)) return false;
  return true;
}

bool StreamModel::Add(const v1::Chunk& chunk) {
  if (chunk.input_index() < 0 || static_cast<size_t>(chunk.input_index()) >= inputs()) return false;
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

std::string MakeStreamMessage(FuzzInput* decisions, const StreamModel& model) {
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

}  // namespace warpcall::testing
