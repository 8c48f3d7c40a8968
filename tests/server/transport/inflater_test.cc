#include "server/transport/inflater.h"

#include <gmock/gmock.h>
#include <grpc/byte_buffer.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "server/engine/refusal.h"
#include "server/transport/slices.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kBytesMax = 8 * kMib;
constexpr uint64_t kAlice = 1;
constexpr uint64_t kBob = 2;
constexpr uint64_t kCarol = 3;

std::string Compress(const std::string& bytes, grpc_compression_algorithm algorithm) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 1, Z_DEFLATED, algorithm == GRPC_COMPRESS_GZIP ? 15 + 16 : 15, 8,
                         Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string compressed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<unsigned char*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

// A message as gRPC hands it over, in slices of `slice_bytes`.
grpc::ByteBuffer Message(const std::string& bytes, grpc_compression_algorithm algorithm,
                         size_t slice_bytes = 1000) {
  std::vector<grpc_slice> slices;
  for (size_t at = 0; at < bytes.size(); at += slice_bytes)
    slices.push_back(
        grpc_slice_from_copied_buffer(bytes.data() + at, std::min(slice_bytes, bytes.size() - at)));
  grpc_byte_buffer* const buffer =
      grpc_raw_compressed_byte_buffer_create(slices.data(), slices.size(), algorithm);
  for (const grpc_slice& slice : slices) grpc_slice_unref(slice);
  grpc::ByteBuffer message;
  static_assert(sizeof(message) == sizeof(buffer), "ByteBuffer is a pointer to what C has");
  std::memcpy(static_cast<void*>(&message), &buffer, sizeof(buffer));
  return message;
}

// Bytes that compress by a half or so, with no period.
std::string CompressibleText(size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t state = 1;
  for (char& c : text) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>('a' + (state >> 28));
  }
  return text;
}

TEST(InflaterTest, GivesBackWhatWasCompressed) {
  const Inflater inflater(kBytesMax);
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE})
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{3} << 20})
      for (const size_t slice_bytes : {size_t{1}, size_t{1000}, size_t{1} << 24}) {
        if (slice_bytes == 1 && bytes > 4097) continue;
        const std::string text = CompressibleText(bytes);
        grpc::ByteBuffer message = Message(Compress(text, algorithm), algorithm, slice_bytes);
        EXPECT_TRUE(Inflater::IsCompressed(message));
        const absl::Status status = inflater.Inflate(kAlice, static_cast<int64_t>(bytes), &message);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_FALSE(Inflater::IsCompressed(message));
        EXPECT_EQ(Flat(message), text);
      }
  EXPECT_EQ(inflater.bytes_in_use(), 0);
}

TEST(InflaterTest, LeavesAPlainMessageAsItIs) {
  const Inflater inflater(kBytesMax);
  grpc::ByteBuffer message = Message("plain", GRPC_COMPRESS_NONE);
  EXPECT_FALSE(Inflater::IsCompressed(message));
  EXPECT_TRUE(inflater.Inflate(kAlice, 1, &message).ok());
  EXPECT_EQ(Flat(message), "plain");
}

TEST(InflaterTest, OneByteOverTheLimitIsRefusedForGood) {
  const Inflater inflater(kBytesMax);
  for (const size_t limit : {size_t{0}, size_t{1}, size_t{4096}, size_t{100'000}}) {
    grpc::ByteBuffer message =
        Message(Compress(CompressibleText(limit + 1), GRPC_COMPRESS_GZIP), GRPC_COMPRESS_GZIP);
    const absl::Status status = inflater.Inflate(kAlice, static_cast<int64_t>(limit), &message);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("more than ", limit, " bytes")));
    EXPECT_EQ(RetryPushbackMs(status), kNeverRetry);
    EXPECT_EQ(inflater.bytes_in_use(), 0);
  }
}

// 64 MiB of zeros in 64 KiB: no more memory is taken for it than the limit.
TEST(InflaterTest, ABombTakesNoMoreMemoryThanItsLimit) {
  const Inflater inflater(kMib + 1);
  grpc::ByteBuffer message =
      Message(Compress(std::string(64 << 20, '\0'), GRPC_COMPRESS_GZIP), GRPC_COMPRESS_GZIP);
  EXPECT_THAT(std::string(inflater.Inflate(kAlice, kMib, &message).message()),
              HasSubstr("inflates to more than 1048576 bytes"));
  EXPECT_EQ(inflater.bytes_in_use(), 0);
}

TEST(InflaterTest, CorruptBytesAreRefused) {
  const Inflater inflater(kBytesMax);
  const std::string good = Compress(CompressibleText(10'000), GRPC_COMPRESS_GZIP);
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 0x55);
  for (const std::string& bytes : {good.substr(0, good.size() - 1), good + "x", flipped,
                                   std::string("no gzip"), std::string()}) {
    grpc::ByteBuffer message = Message(bytes, GRPC_COMPRESS_GZIP);
    const absl::Status status = inflater.Inflate(kAlice, kMib, &message);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << " of " << bytes.size() << " bytes";
    EXPECT_EQ(inflater.bytes_in_use(), 0);
  }
}

// Whatever one principal holds, another may have as much; together they have a limit.
TEST(InflaterTest, APrincipalHasHalfOfWhatAllHaveTogether) {
  const Inflater inflater(2 * kMib);
  const std::string compressed = Compress(CompressibleText(3 << 19), GRPC_COMPRESS_GZIP);
  const auto inflate = [&](uint64_t principal, grpc::ByteBuffer* message) {
    *message = Message(compressed, GRPC_COMPRESS_GZIP);
    return inflater.Inflate(principal, 2 * kMib, message);
  };
  const auto expect_refusal = [](const absl::Status& status, const char* whose) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(whose));
    EXPECT_GT(RetryPushbackMs(status).value_or(-1), 0);
  };
  grpc::ByteBuffer alices;
  grpc::ByteBuffer bobs;
  grpc::ByteBuffer more;
  ASSERT_TRUE(inflate(kAlice, &alices).ok());
  expect_refusal(inflate(kAlice, &more), "the caller's inflated messages hold 2097152 bytes, and");
  const absl::Status bob = inflate(kBob, &bobs);
  ASSERT_TRUE(bob.ok()) << bob;
  expect_refusal(inflate(kCarol, &more), "and may hold 4194304 together");
  alices.Clear();
  EXPECT_TRUE(inflate(kCarol, &more).ok());
  bobs.Clear();
  more.Clear();
  EXPECT_EQ(inflater.bytes_in_use(), 0);
}

TEST(InflaterTest, AnswersCountUntilNobodyHasThem) {
  const Inflater inflater(kMib);
  const std::string text = CompressibleText(3 << 18);
  grpc::ByteBuffer answer;
  ASSERT_TRUE(inflater.Charge(kAlice, text, &answer).ok());
  EXPECT_EQ(Flat(answer), text);
  EXPECT_EQ(inflater.bytes_in_use(), 3 << 18);
  grpc::ByteBuffer more;
  EXPECT_TRUE(absl::IsResourceExhausted(inflater.Charge(kAlice, text, &more)));
  EXPECT_TRUE(inflater.Charge(kBob, "", &more).ok());
  EXPECT_EQ(Flat(more), "");
  more.Clear();
  answer.Clear();
  EXPECT_TRUE(inflater.Charge(kAlice, text, &answer).ok());
  answer.Clear();
  EXPECT_EQ(inflater.bytes_in_use(), 0);
}

TEST(InflaterTest, LargeMessagesAreInflatedOnAnotherThreadAndSmallOnesAtOnce) {
  Inflater inflater(kBytesMax);
  for (const size_t bytes : {size_t{1} << 10, size_t{4} << 20}) {
    grpc::ByteBuffer message =
        Message(Compress(std::string(bytes, 'x'), GRPC_COMPRESS_GZIP), GRPC_COMPRESS_GZIP);
    std::promise<std::thread::id> thread;
    inflater.InflateAsync(kAlice, kBytesMax, &message, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      thread.set_value(std::this_thread::get_id());
    });
    EXPECT_EQ(thread.get_future().get() == std::this_thread::get_id(), bytes <= 1 << 10);
    EXPECT_EQ(Flat(message), std::string(bytes, 'x'));
  }
}

}  // namespace
}  // namespace warpcall
