#include "proto/wire/tensor_split.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/wire/cursor.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::wire {
namespace {

constexpr uint32_t kTensorType = v1::Tensor::kDataTypeFieldNumber;
constexpr uint32_t kTensorShape = v1::Tensor::kShapeFieldNumber;
constexpr uint32_t kTensorData = v1::Tensor::kDataFieldNumber;
static_assert(kExecuteRequestInputs == v1::ExecuteRequest::kInputsFieldNumber);
static_assert(kExecuteResponseOutputs == v1::ExecuteResponse::kOutputsFieldNumber);

// The highest number of a message's fields: length-delimited fields above it are unknown, so their
// content is stepped over. Taken from the descriptor, so that what is added there comes through.
template <typename Message>
uint32_t HighestField() {
  static const int highest = [] {
    const google::protobuf::Descriptor& descriptor = *Message::descriptor();
    int number = 0;
    for (int i = 0; i < descriptor.field_count(); ++i)
      number = std::max(number, descriptor.field(i)->number());
    return number;
  }();
  return static_cast<uint32_t>(highest);
}

class Splitter {
 public:
  Splitter(absl::Span<const Bytes> fragments, int tensor_field, SplitMessage* split)
      : cursor_(fragments),
        tensor_tag_(Tag(tensor_field, kLength)),
        message_field_max_(tensor_field == kExecuteRequestInputs
                               ? HighestField<v1::ExecuteRequest>()
                               : HighestField<v1::ExecuteResponse>()),
        tensor_field_max_(HighestField<v1::Tensor>()),
        split_(split) {}

  absl::Status Run() {
    while (!cursor_.AtLimit()) {
      uint32_t tag;
      if (!cursor_.ReadTag(&tag)) return Malformed("a field tag is");
      const absl::Status status =
          tag == tensor_tag_ ? Tensor() : Field(tag, message_field_max_, &split_->header);
      if (!status.ok()) return status;
      if (split_->header.size() > kHeaderBytesMax) return TooLarge();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Malformed(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("the message is not valid protobuf: ", what,
                                                   " malformed or cut off before byte ",
                                                   cursor_.position()));
  }

  absl::Status TooLarge() const {
    return absl::InvalidArgumentError(
        absl::StrCat("the message without tensor data exceeds ", kHeaderBytesMax, " bytes at byte ",
                     cursor_.position(), ": names, shapes and attributes must fit that limit"));
  }

  absl::Status Tensor() {
    size_t length;
    if (!cursor_.ReadLength(&length)) return Malformed("a tensor's length is");
    FragmentedBytes& data = split_->tensor_data.emplace_back();
    tensor_header_.clear();
    const size_t outer = cursor_.PushLimit(length);
    while (!cursor_.AtLimit()) {
      uint32_t tag;
      if (!cursor_.ReadTag(&tag)) return Malformed("a tensor's field tag is");
      if (tag == Tag(kTensorData, kLength)) {
        if (!cursor_.ReadLength(&length)) return Malformed("a tensor's data length is");
        data.Clear();
        cursor_.Take(length, [&](Bytes piece) { data.Append(piece); });
        // Stays as an empty field, so that whatever repeats costs header bytes and meets their
        // limit.
        AppendVarint(tag, &tensor_header_);
        AppendVarint(0, &tensor_header_);
      } else if (absl::Status status = Field(tag, tensor_field_max_, &tensor_header_);
                 !status.ok()) {
        return status;
      }
      if (tensor_header_.size() > kHeaderBytesMax) return TooLarge();
    }
    cursor_.PopLimit(outer);
    AppendVarint(tensor_tag_, &split_->header);
    AppendVarint(tensor_header_.size(), &split_->header);
    split_->header += tensor_header_;
    return absl::OkStatus();
  }

  // Copies one field to `out`; an unknown length-delimited one loses its content.
  absl::Status Field(uint32_t tag, uint32_t field_max, std::string* out) {
    if ((tag & 7) == kStartGroup) return Group(tag, out);
    AppendVarint(tag, out);
    return Value(tag, tag >> 3 <= field_max, out);
  }

  absl::Status Value(uint32_t tag, bool keep, std::string* out) {
    uint64_t value;
    size_t length;
    switch (tag & 7) {
      case kVarint:
        if (!cursor_.ReadVarint(10, &value)) return Malformed("a varint is");
        AppendVarint(value, out);
        return absl::OkStatus();
      case kFixed64:
      case kFixed32:
        length = (tag & 7) == kFixed64 ? 8 : 4;
        if (cursor_.remaining() < length) return Malformed("a fixed-width field is");
        cursor_.Take(length, [&](Bytes piece) { out->append(piece.data(), piece.size()); });
        return absl::OkStatus();
      case kLength:
        if (!cursor_.ReadLength(&length)) return Malformed("a field's length is");
        if (keep && length > kHeaderBytesMax) return TooLarge();
        AppendVarint(keep ? length : 0, out);
        cursor_.Take(length, [&](Bytes piece) {
          if (keep) out->append(piece.data(), piece.size());
        });
        return absl::OkStatus();
      default:
        return Malformed("a wire type is");
    }
  }

  // Groups are never part of these messages, but protobuf accepts them as unknown fields. Their
  // tags and values go to the header (less the content of length-delimited ones), whose parser
  // judges nesting.
  absl::Status Group(uint32_t start_tag, std::string* out) {
    AppendVarint(start_tag, out);
    for (int64_t depth = 1; depth > 0;) {
      uint32_t tag;
      if (!cursor_.ReadTag(&tag)) return Malformed("a tag in a group is");
      AppendVarint(tag, out);
      if ((tag & 7) == kStartGroup) {
        ++depth;
      } else if ((tag & 7) == kEndGroup) {
        --depth;
      } else if (absl::Status status = Value(tag, false, out); !status.ok()) {
        return status;
      }
      if (out->size() > kHeaderBytesMax) return TooLarge();
    }
    return absl::OkStatus();
  }

  Cursor cursor_;
  const uint32_t tensor_tag_;
  const uint32_t message_field_max_;
  const uint32_t tensor_field_max_;
  SplitMessage* const split_;
  std::string tensor_header_;
};

}  // namespace

void FragmentedBytes::Append(Bytes piece) {
  pieces.push_back(piece);
  size += piece.size();
}

void FragmentedBytes::Clear() {
  pieces.clear();
  size = 0;
}

void FragmentedBytes::CopyTo(void* destination) const {
  auto* out = static_cast<char*>(destination);
  for (const Bytes& piece : pieces) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
}

void SplitMessage::Clear() {
  header.clear();
  tensor_data.clear();
}

absl::Status SplitTensors(absl::Span<const Bytes> fragments, int tensor_field,
                          SplitMessage* split) {
  split->Clear();
  return Splitter(fragments, tensor_field, split).Run();
}

void AppendTensorPrefix(int tensor_field, const TensorPrefix& prefix, std::string* out) {
  size_t shape_bytes = 0;
  for (int64_t dim : prefix.shape) shape_bytes += VarintBytes(static_cast<uint64_t>(dim));
  std::string fields;
  AppendVarint(Tag(kTensorType, kVarint), &fields);
  AppendVarint(static_cast<uint64_t>(prefix.data_type), &fields);
  AppendVarint(Tag(kTensorShape, kLength), &fields);
  AppendVarint(shape_bytes, &fields);
  for (int64_t dim : prefix.shape) AppendVarint(static_cast<uint64_t>(dim), &fields);
  AppendVarint(Tag(kTensorData, kLength), &fields);
  AppendVarint(prefix.data_bytes, &fields);
  AppendVarint(Tag(static_cast<uint32_t>(tensor_field), kLength), out);
  AppendVarint(fields.size() + prefix.data_bytes, out);
  *out += fields;
}

}  // namespace warpcall::wire
