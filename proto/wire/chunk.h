// Parses the messages of ExecuteStream, Put and Get, and makes chunks, without copying tensor
// bytes. Client and server share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/wire/tensor_split.h"

namespace warpcall::wire {

// The members of ExecuteStreamRequest and ExecuteStreamResponse; the values are their field
// numbers. A request has no kDone. PutRequest and GetResponse have the members of a request.
enum class StreamMember : uint8_t { kNone = 0, kHeader = 1, kChunk = 2, kDone = 3 };

struct StreamMessage {
  // The member that is set.
  StreamMember member = StreamMember::kNone;
  // The member's content, for SplitTensors or ParseChunk. If it was given several times in a row,
  // the contents are concatenated, which parses as protobuf merges them. Points into the fragments.
  FragmentedBytes payload;

  void Clear();
};

// Find the member that the message in `fragments` holds. They accept every encoding that protobuf
// accepts (unknown fields, members given several times: the last counts). INVALID_ARGUMENT if
// protobuf refuses the message at this level or one below; the payload's own parser checks deeper
// levels, except in members that a later one replaced. INVALID_ARGUMENT too when fields, without
// the content of length-delimited ones, exceed kHeaderBytesMax: so no message can keep a thread
// long.
absl::Status SplitStreamRequest(absl::Span<const Bytes> fragments, StreamMessage* message);
absl::Status SplitStreamResponse(absl::Span<const Bytes> fragments, StreamMessage* message);

struct ChunkView {
  int32_t input_index = 0;
  int64_t offset = 0;
  FragmentedBytes data;  // points into the payload

  void Clear();
};

// Reads a Chunk, the payload of a StreamMessage, with the checks above. Index and offset may have
// any value, negative ones included.
absl::Status ParseChunk(absl::Span<const Bytes> payload, ChunkView* chunk);

// The fields before a chunk's data.
struct ChunkPrefix {
  int32_t input_index = 0;
  int64_t offset = 0;
  size_t data_bytes = 0;
};

// Appends to `out` an ExecuteStreamRequest or -Response (the encoding is the same) that holds this
// chunk, except its data bytes, which must follow and end the message.
void AppendChunkPrefix(const ChunkPrefix& prefix, std::string* out);

}  // namespace warpcall::wire
