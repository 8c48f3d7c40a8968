#include "server/transport/slices.h"

#include "absl/strings/str_cat.h"
#include "server/engine/refusal.h"

namespace warpcall {
namespace {

// Slices of a message: any number up to kSlicesFree, then one for every kSliceBytesMin bytes.
// gRPC's clients send frames of 16 KiB, networks packets of half a KiB and more.
constexpr size_t kSlicesFree = 4096;
constexpr size_t kSliceBytesMin = 256;

}  // namespace

void Slices::Clear() {
  if (slices_.empty()) return;
  const grpc::ByteBuffer holds_the_last(slices_.data(), slices_.size());
  slices_.clear();
}

bool Slices::TakeAllOf(const grpc::ByteBuffer& message) {
  Clear();
  return message.Dump(&slices_).ok();
}

std::string Flat(const grpc::ByteBuffer& message) {
  Slices slices;
  std::string bytes;
  bytes.reserve(message.Length());
  if (slices.TakeAllOf(message))
    for (const grpc::Slice& slice : slices)
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

absl::Status DumpSlices(const grpc::ByteBuffer& message, Slices* slices) {
  if (!slices->TakeAllOf(message)) return absl::InternalError("the message's bytes are unreadable");
  const size_t limit = kSlicesFree + message.Length() / kSliceBytesMin;
  if (slices->size() <= limit) return absl::OkStatus();
  return RefuseFor(RejectReason::kMessageBytes,
                   absl::ResourceExhaustedError(absl::StrCat("the message's ", message.Length(),
                                                             " bytes came in ", slices->size(),
                                                             " pieces; the limit is ", limit)),
                   kNeverRetry);
}

}  // namespace warpcall
