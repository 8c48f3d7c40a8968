#include "proto/wire/chunk.h"

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/common/check.h"
#include "proto/wire/cursor.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::wire {
namespace {

constexpr uint32_t kChunkMember = static_cast<uint32_t>(StreamMember::kChunk);
constexpr uint32_t kChunkIndex = v1::Chunk::kInputIndexFieldNumber;
constexpr uint32_t kChunkOffset = v1::Chunk::kOffsetFieldNumber;
constexpr uint32_t kChunkData = v1::Chunk::kDataFieldNumber;

constexpr bool Is(StreamMember member, int field) { return static_cast<int>(member) == field; }
static_assert(Is(StreamMember::kHeader, v1::ExecuteStreamRequest::kHeaderFieldNumber) &&
              Is(StreamMember::kHeader, v1::ExecuteStreamResponse::kHeaderFieldNumber) &&
              Is(StreamMember::kChunk, v1::ExecuteStreamRequest::kChunkFieldNumber) &&
              Is(StreamMember::kChunk, v1::ExecuteStreamResponse::kChunkFieldNumber) &&
              Is(StreamMember::kDone, v1::ExecuteStreamResponse::kDoneFieldNumber) &&
              Is(StreamMember::kHeader, v1::PutRequest::kHeaderFieldNumber) &&
              Is(StreamMember::kChunk, v1::PutRequest::kChunkFieldNumber) &&
              Is(StreamMember::kHeader, v1::GetResponse::kHeaderFieldNumber) &&
              Is(StreamMember::kChunk, v1::GetResponse::kChunkFieldNumber));

// How deep protobuf's parser follows messages and groups.
constexpr size_t kNestingMax = 100;

// A cursor that reports errors, and refuses messages that consist of too many tiny fields.
class FieldReader {
 public:
  // `nesting` is the number of messages around the fields. `*small_bytes` counts the bytes read so
  // far, by other readers of the message too, without the content of length-delimited fields.
  FieldReader(absl::Span<const Bytes> fragments, size_t nesting, size_t* small_bytes)
      : cursor_(fragments), nesting_(nesting), small_bytes_(small_bytes) {}

  bool AtEnd() const { return cursor_.AtLimit(); }

  absl::Status NextTag(uint32_t* tag) {
    if (!cursor_.ReadTag(tag)) return Malformed("a field tag is");
    *small_bytes_ += cursor_.position() - counted_position_;
    counted_position_ = cursor_.position();
    if (*small_bytes_ <= kHeaderBytesMax) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the message's fields without their content exceed ", kHeaderBytesMax,
                     " bytes at byte ", cursor_.position()));
  }

  absl::Status Varint(uint64_t* value) {
    return cursor_.ReadVarint(10, value) ? absl::OkStatus() : Malformed("a varint is");
  }

  // Reads the content of a length-delimited field; `content` may be null.
  absl::Status Content(FragmentedBytes* content) {
    size_t length;
    if (!cursor_.ReadLength(&length)) return Malformed("a field's length is");
    counted_position_ += length;
    cursor_.Take(length, [content](Bytes piece) {
      if (content != nullptr) content->Append(piece);
    });
    return absl::OkStatus();
  }

  // Steps over the field whose tag was read, and over all fields in a group.
  absl::Status Skip(uint32_t tag) {
    absl::InlinedVector<uint32_t, 4> open_groups;
    while (true) {
      if ((tag & 7) == kStartGroup) {
        open_groups.push_back(tag >> 3);
        if (nesting_ + open_groups.size() > kNestingMax) return Malformed("groups, too deep, are");
      } else if ((tag & 7) == kEndGroup) {
        if (open_groups.empty() || open_groups.back() != tag >> 3)
          return Malformed("the end of a group is");
        open_groups.pop_back();
      } else if (absl::Status status = SkipValue(tag); !status.ok()) {
        return status;
      }
      if (open_groups.empty()) return absl::OkStatus();
      if (absl::Status status = NextTag(&tag); !status.ok()) return status;
    }
  }

 private:
  absl::Status Malformed(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("the message is not valid protobuf: ", what,
                                                   " malformed or cut off before byte ",
                                                   cursor_.position()));
  }

  absl::Status SkipValue(uint32_t tag) {
    uint64_t value;
    switch (tag & 7) {
      case kVarint:
        return Varint(&value);
      case kLength:
        return Content(nullptr);
      case kFixed64:
      case kFixed32: {
        const size_t bytes = (tag & 7) == kFixed64 ? 8 : 4;
        if (cursor_.remaining() < bytes) return Malformed("a fixed-width field is");
        cursor_.Take(bytes, [](Bytes) {});
        return absl::OkStatus();
      }
      default:
        return Malformed("a wire type is");
    }
  }

  Cursor cursor_;
  const size_t nesting_;
  size_t* const small_bytes_;
  size_t counted_position_ = 0;
};

// Fields must end where their message ends: otherwise two payloads that are each cut off could form
// a whole when concatenated.
absl::Status CheckFields(absl::Span<const Bytes> payload, size_t* small_bytes) {
  FieldReader reader(payload, 1, small_bytes);
  while (!reader.AtEnd()) {
    uint32_t tag;
    if (absl::Status status = reader.NextTag(&tag); !status.ok()) return status;
    if (absl::Status status = reader.Skip(tag); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SplitMembers(absl::Span<const Bytes> fragments, StreamMember last,
                          StreamMessage* message) {
  message->Clear();
  size_t small_bytes = 0;
  FieldReader reader(fragments, 0, &small_bytes);
  while (!reader.AtEnd()) {
    uint32_t tag;
    if (absl::Status status = reader.NextTag(&tag); !status.ok()) return status;
    const uint32_t field = tag >> 3;
    if ((tag & 7) != kLength || field > static_cast<uint32_t>(last)) {
      if (absl::Status status = reader.Skip(tag); !status.ok()) return status;
      continue;
    }
    FragmentedBytes payload;
    if (absl::Status status = reader.Content(&payload); !status.ok()) return status;
    if (absl::Status status = CheckFields(payload.pieces, &small_bytes); !status.ok())
      return status;
    const auto member = static_cast<StreamMember>(field);
    if (member != message->member) message->Clear();
    message->member = member;
    for (const Bytes& piece : payload.pieces) message->payload.Append(piece);
  }
  return absl::OkStatus();
}

}  // namespace

void StreamMessage::Clear() {
  member = StreamMember::kNone;
  payload.Clear();
}

absl::Status SplitStreamRequest(absl::Span<const Bytes> fragments, StreamMessage* message) {
  return SplitMembers(fragments, StreamMember::kChunk, message);
}

absl::Status SplitStreamResponse(absl::Span<const Bytes> fragments, StreamMessage* message) {
  return SplitMembers(fragments, StreamMember::kDone, message);
}

void ChunkView::Clear() {
  input_index = 0;
  offset = 0;
  data.Clear();
}

absl::Status ParseChunk(absl::Span<const Bytes> payload, ChunkView* chunk) {
  chunk->Clear();
  size_t small_bytes = 0;
  FieldReader reader(payload, 1, &small_bytes);
  while (!reader.AtEnd()) {
    uint32_t tag;
    if (absl::Status status = reader.NextTag(&tag); !status.ok()) return status;
    absl::Status status;
    uint64_t value = 0;
    switch (tag) {
      case Tag(kChunkIndex, kVarint):
        status = reader.Varint(&value);
        chunk->input_index = static_cast<int32_t>(value);
        break;
      case Tag(kChunkOffset, kVarint):
        status = reader.Varint(&value);
        chunk->offset = static_cast<int64_t>(value);
        break;
      case Tag(kChunkData, kLength):
        chunk->data.Clear();
        status = reader.Content(&chunk->data);
        break;
      default:
        status = reader.Skip(tag);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void AppendChunkPrefix(const ChunkPrefix& prefix, std::string* out) {
  WARPCALL_DCHECK(prefix.offset >= 0, prefix.offset);
  std::string fields;
  AppendVarint(Tag(kChunkIndex, kVarint), &fields);
  AppendVarint(static_cast<uint64_t>(int64_t{prefix.input_index}), &fields);
  AppendVarint(Tag(kChunkOffset, kVarint), &fields);
  AppendVarint(static_cast<uint64_t>(prefix.offset), &fields);
  AppendVarint(Tag(kChunkData, kLength), &fields);
  AppendVarint(prefix.data_bytes, &fields);
  AppendVarint(Tag(kChunkMember, kLength), out);
  AppendVarint(fields.size() + prefix.data_bytes, out);
  *out += fields;
}

}  // namespace warpcall::wire
