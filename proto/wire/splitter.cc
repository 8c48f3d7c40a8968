#include "proto/wire/splitter.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/wire/cursor.h"

namespace warpcall::wire {
namespace {

constexpr size_t kFloatBytes = 4;

const FieldRule* FindRule(const MessageRule& rule, uint32_t tag) {
  for (const FieldRule& field : rule.fields) {
    if (tag == Tag(field.number, kLength)) return &field;
    // A repeated number may come unpacked, too.
    if (field.kind == FieldRule::Kind::kFloats && tag == Tag(field.number, kFixed32)) return &field;
  }
  return nullptr;
}

class Splitter {
 public:
  Splitter(absl::Span<const Bytes> fragments, SplitMessage* split)
      : cursor_(fragments), split_(split) {
    headers_[0] = &split->header;
    for (size_t i = 1; i < headers_.size(); ++i) headers_[i] = &inner_headers_[i - 1];
  }

  // Reads a message up to the cursor's limit. Appends its tensor data to `data`, which is null
  // while no tensor has begun.
  absl::Status Message(const MessageRule& rule, size_t depth, FragmentedBytes* data) {
    WARPCALL_CHECK(depth < headers_.size(), depth);
    std::string* const header = headers_[depth];
    while (!cursor_.AtLimit()) {
      uint32_t tag;
      if (!cursor_.ReadTag(&tag)) return Malformed("a field tag is");
      const FieldRule* const field = FindRule(rule, tag);
      const absl::Status status = field == nullptr ? Field(tag, rule.number_max(), header)
                                  : field->message != nullptr ? Inner(tag, *field, depth, data)
                                                              : Data(tag, *field, depth, data);
      if (!status.ok()) return status;
      if (header->size() > kHeaderBytesMax) return TooLarge();
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

  absl::Status Inner(uint32_t tag, const FieldRule& field, size_t depth, FragmentedBytes* data) {
    size_t length;
    if (!cursor_.ReadLength(&length)) return Malformed("a message's length is");
    if (field.kind == FieldRule::Kind::kTensors) data = &split_->tensor_data.emplace_back();
    WARPCALL_CHECK(depth + 1 < headers_.size(), depth, field.number);
    std::string* const inner = headers_[depth + 1];
    inner->clear();
    const size_t outer = cursor_.PushLimit(length);
    if (absl::Status status = Message(*field.message, depth + 1, data); !status.ok()) return status;
    cursor_.PopLimit(outer);
    AppendVarint(tag, headers_[depth]);
    AppendVarint(inner->size(), headers_[depth]);
    *headers_[depth] += *inner;
    return absl::OkStatus();
  }

  absl::Status Data(uint32_t tag, const FieldRule& field, size_t depth, FragmentedBytes* data) {
    size_t length = kFloatBytes;
    if ((tag & 7) == kFixed32) {
      if (cursor_.remaining() < length) return Malformed("a fixed-width field is");
    } else if (!cursor_.ReadLength(&length)) {
      return Malformed("a tensor's data length is");
    }
    if (field.kind == FieldRule::Kind::kFloats && length % kFloatBytes != 0)
      return Malformed("the length of packed floats is");
    if (field.kind == FieldRule::Kind::kEachBytes) data = &split_->raw_data.emplace_back();
    WARPCALL_CHECK(data != nullptr, field.number);
    if (field.kind == FieldRule::Kind::kBytes) data->Clear();
    cursor_.Take(length, [&](Bytes piece) { data->Append(piece); });
    // Stays as an empty field, so that repeated fields cost header bytes and meet their limit.
    AppendVarint(Tag(field.number, kLength), headers_[depth]);
    AppendVarint(0, headers_[depth]);
    return absl::OkStatus();
  }

  // Copies one field to `out`; an unknown length-delimited one loses its content.
  absl::Status Field(uint32_t tag, uint32_t number_max, std::string* out) {
    if ((tag & 7) == kStartGroup) return Group(tag, out);
    AppendVarint(tag, out);
    return Value(tag, tag >> 3 <= number_max, out);
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
  // checks nesting.
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
  SplitMessage* const split_;
  std::array<std::string*, kRuleDepthMax> headers_;  // by depth
  std::array<std::string, kRuleDepthMax - 1> inner_headers_;
};

}  // namespace

std::string FindMisfit(const MessageRule& rule, int depth) {
  using Kind = FieldRule::Kind;
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor& descriptor = *rule.descriptor();
  if (depth > kRuleDepthMax) return absl::StrCat(descriptor.name(), " lies too deep");
  for (const FieldRule& field : rule.fields) {
    const FieldDescriptor* const found =
        descriptor.FindFieldByNumber(static_cast<int>(field.number));
    if (found == nullptr) return absl::StrCat(descriptor.name(), " has no field ", field.number);
    const bool is_message = field.kind == Kind::kTensors || field.kind == Kind::kMessage;
    const bool is_repeated = field.kind != Kind::kMessage && field.kind != Kind::kBytes;
    const FieldDescriptor::Type type = is_message                    ? FieldDescriptor::TYPE_MESSAGE
                                       : field.kind == Kind::kFloats ? FieldDescriptor::TYPE_FLOAT
                                                                     : FieldDescriptor::TYPE_BYTES;
    if (found->type() != type || found->is_repeated() != is_repeated)
      return absl::StrCat(found->full_name(), " is of another type");
    if (is_message != (field.message != nullptr) ||
        (is_message && field.message->descriptor() != found->message_type()))
      return absl::StrCat(found->full_name(), " is another message");
    if (!is_message) continue;
    if (std::string inner = FindMisfit(*field.message, depth + 1); !inner.empty()) return inner;
  }
  return "";
}

absl::Status Split(absl::Span<const Bytes> fragments, const MessageRule& rule, SplitMessage* split,
                   FragmentedBytes* data) {
  WARPCALL_DCHECK(FindMisfit(rule).empty(), FindMisfit(rule));
  split->Clear();
  return Splitter(fragments, split).Message(rule, 0, data);
}

}  // namespace warpcall::wire
