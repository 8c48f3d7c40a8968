#include "server/transport/inflater.h"

#include <grpc/byte_buffer.h>
#include <grpc/impl/codegen/grpc_types.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/transport/slices.h"

namespace grpc::internal {

// gRPC declares this class as a friend of ByteBuffer and leaves it to others to define. The
// algorithm that a message was compressed by is a member of the C struct behind it.
class GrpcByteBufferPeer {
 public:
  static grpc_compression_algorithm Algorithm(const grpc::ByteBuffer& message) {
    const grpc_byte_buffer* const buffer = message.buffer_;
    return buffer == nullptr ? GRPC_COMPRESS_NONE : buffer->data.raw.compression;
  }
};

}  // namespace grpc::internal

namespace warpcall {
namespace {

// Compressed bytes of a message that gRPC's thread inflates itself, and what may come of them: as
// much as such a thread may copy. A larger message goes to the inflater's thread.
constexpr size_t kCompressedBytesAtOnceMax = 16 << 10;
constexpr int64_t kBytesAtOnceMax = 256 << 10;
// Inflated bytes lie in pieces whose sizes double between these.
constexpr size_t kPieceBytesMin = 4 << 10;
constexpr size_t kPieceBytesMax = 1 << 20;
// How long a client waits before it sends again what found no memory.
constexpr int64_t kPushbackMs = 100;
// zlib's window, with its flag for a gzip header.
constexpr int kWindowBits = 15;
constexpr int kGzip = 16;

grpc_compression_algorithm AlgorithmOf(const grpc::ByteBuffer& message) {
  return grpc::internal::GrpcByteBufferPeer::Algorithm(message);
}

absl::Status TooLong(int64_t limit) {
  return RefuseFor(
      RejectReason::kMessageBytes,
      absl::ResourceExhaustedError(absl::StrCat("the compressed message inflates to more than ",
                                                limit, " bytes, which is the limit")),
      kNeverRetry);
}

absl::Status NoMemory(absl::string_view why) {
  return RefuseFor(RejectReason::kMessageBytes,
                   absl::ResourceExhaustedError(absl::StrCat("no memory for the message: ", why)),
                   kPushbackMs);
}

// The principal whose memory a message uses, and the counter for that memory.
struct Account {
  uint64_t principal;
  std::shared_ptr<InflatedBytes> bytes;
};

// Part of an inflated message. Counts as memory in use until nobody refers to its slice.
class Piece {
 public:
  // REQUIRES: `capacity` was taken from the account.
  Piece(size_t capacity, Account account)
      : capacity_(capacity),
        bytes_(static_cast<unsigned char*>(std::malloc(capacity))),
        account_(std::move(account)) {}
  ~Piece() {
    std::free(bytes_);
    account_.bytes->GiveBack(account_.principal, static_cast<int64_t>(capacity_));
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  unsigned char* bytes() { return bytes_; }  // null: malloc failed
  size_t capacity() const { return capacity_; }

 private:
  const size_t capacity_;
  unsigned char* const bytes_;
  const Account account_;
};

// A message that was never compressed. Counts as a Piece does.
struct Answer {
  ~Answer() { account.bytes->GiveBack(account.principal, static_cast<int64_t>(text.size())); }

  std::string text;
  Account account;
};

// One message's inflation.
class Inflation {
 public:
  Inflation(int64_t limit, Account account) : limit_(limit), account_(std::move(account)) {}
  ~Inflation() {
    if (begun_) inflateEnd(&stream_);
  }

  absl::Status Begin(grpc_compression_algorithm algorithm) {
    if (algorithm != GRPC_COMPRESS_GZIP && algorithm != GRPC_COMPRESS_DEFLATE)
      return absl::UnimplementedError(
          absl::StrCat("compression algorithm ", algorithm, " is unknown; known: gzip, deflate"));
    const int bits = algorithm == GRPC_COMPRESS_GZIP ? kWindowBits + kGzip : kWindowBits;
    if (inflateInit2(&stream_, bits) != Z_OK) return NoMemory("zlib has none");
    begun_ = true;
    return absl::OkStatus();
  }

  // Inflates the next bytes of the message.
  absl::Status Add(const grpc::Slice& slice) {
    stream_.next_in = const_cast<unsigned char*>(slice.begin());
    stream_.avail_in = static_cast<uInt>(slice.size());
    while (stream_.avail_in > 0 || stream_.avail_out == 0) {
      if (ended_) break;
      if (stream_.avail_out == 0) RETURN_IF_ERROR(AddPiece());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) return NoMemory("zlib has none");
      ended_ = result == Z_STREAM_END;
      if (static_cast<int64_t>(stream_.total_out) > limit_) return TooLong(limit_);
      if (result == Z_BUF_ERROR) break;  // wants more of the message
      if (result != Z_OK && !ended_) return Corrupt(stream_.msg);
    }
    if (stream_.avail_in > 0) return Corrupt("bytes follow its end");
    return absl::OkStatus();
  }

  // The inflated message. REQUIRES: every slice was added.
  absl::StatusOr<grpc::ByteBuffer> End() {
    if (!ended_) return Corrupt("it ends too early");
    size_t left = stream_.total_out;
    std::vector<grpc::Slice> slices;
    for (std::unique_ptr<Piece>& piece : pieces_) {
      const size_t bytes = std::min(left, piece->capacity());
      left -= bytes;
      if (bytes == 0) continue;
      Piece* const owner = piece.release();
      slices.emplace_back(
          owner->bytes(), bytes, [](void* p) { delete static_cast<Piece*>(p); }, owner);
    }
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

 private:
  static absl::Status Corrupt(const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("the message's compressed bytes are corrupt: ",
                                                   why == nullptr ? "zlib does not say why" : why));
  }

  // One byte more than the limit shows that a message is longer.
  absl::Status AddPiece() {
    const auto left = static_cast<size_t>(limit_ + 1 - static_cast<int64_t>(stream_.total_out));
    const size_t usual =
        pieces_.empty() ? kPieceBytesMin : std::min(2 * pieces_.back()->capacity(), kPieceBytesMax);
    const size_t capacity = std::min(usual, left);
    RETURN_IF_ERROR(account_.bytes->Take(account_.principal, static_cast<int64_t>(capacity)));
    pieces_.push_back(std::make_unique<Piece>(capacity, account_));
    if (pieces_.back()->bytes() == nullptr) return NoMemory("the system has none");
    stream_.next_out = pieces_.back()->bytes();
    stream_.avail_out = static_cast<uInt>(capacity);
    return absl::OkStatus();
  }

  const int64_t limit_;
  const Account account_;
  z_stream stream_ = {};
  bool begun_ = false;
  bool ended_ = false;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace

absl::Status InflatedBytes::Take(uint64_t principal, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_principal_.find(principal);
  const int64_t own = found == by_principal_.end() ? 0 : found->second;
  if (own + bytes > principal_max_)
    return NoMemory(absl::StrCat("the caller's inflated messages hold ", own,
                                 " bytes, and may hold ", principal_max_, " (max_message_mib)"));
  if (in_use_ + bytes > 2 * principal_max_)
    return NoMemory(absl::StrCat("all callers' inflated messages hold ", in_use_,
                                 " bytes, and may hold ", 2 * principal_max_,
                                 " together (twice max_message_mib)"));
  in_use_ += bytes;
  by_principal_[principal] = own + bytes;
  return absl::OkStatus();
}

void InflatedBytes::GiveBack(uint64_t principal, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_principal_.find(principal);
  WARPCALL_CHECK(found != by_principal_.end() && found->second >= bytes, principal, bytes);
  in_use_ -= bytes;
  found->second -= bytes;
  if (found->second == 0) by_principal_.erase(found);
}

int64_t InflatedBytes::in_use() const {
  absl::MutexLock lock(&mutex_);
  return in_use_;
}

bool Inflater::IsCompressed(const grpc::ByteBuffer& message) {
  return AlgorithmOf(message) != GRPC_COMPRESS_NONE;
}

absl::Status Inflater::Inflate(uint64_t principal, int64_t limit, grpc::ByteBuffer* message) const {
  if (!IsCompressed(*message)) return absl::OkStatus();
  Slices slices;
  RETURN_IF_ERROR(DumpSlices(*message, &slices));
  Inflation inflation(limit, {principal, bytes_});
  RETURN_IF_ERROR(inflation.Begin(AlgorithmOf(*message)));
  for (const grpc::Slice& slice : slices) RETURN_IF_ERROR(inflation.Add(slice));
  grpc::ByteBuffer inflated;
  ASSIGN_OR_RETURN(inflated, inflation.End());
  message->Swap(&inflated);
  return absl::OkStatus();
}

absl::Status Inflater::Charge(uint64_t principal, std::string bytes,
                              grpc::ByteBuffer* message) const {
  RETURN_IF_ERROR(bytes_->Take(principal, static_cast<int64_t>(bytes.size())));
  auto* const owner = new Answer{std::move(bytes), {principal, bytes_}};
  const grpc::Slice slice(
      owner->text.data(), owner->text.size(), [](void* p) { delete static_cast<Answer*>(p); },
      owner);
  grpc::ByteBuffer answer(&slice, 1);
  message->Swap(&answer);
  return absl::OkStatus();
}

void Inflater::InflateAsync(uint64_t principal, int64_t limit, grpc::ByteBuffer* message,
                            absl::AnyInvocable<void(const absl::Status&)> done) {
  if (!IsCompressed(*message)) return done(absl::OkStatus());
  if (message->Length() <= kCompressedBytesAtOnceMax) {
    const absl::Status status = Inflate(principal, std::min(limit, kBytesAtOnceMax), message);
    const bool is_longer = absl::IsResourceExhausted(status) && limit > kBytesAtOnceMax;
    if (!is_longer) return done(status);
  }
  thread_.Add([this, principal, limit, message, done = std::move(done)]() mutable {
    done(Inflate(principal, limit, message));
  });
}

}  // namespace warpcall
