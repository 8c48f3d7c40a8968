// The bytes of received messages, where gRPC read them.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/wire/tensor_split.h"

namespace warpcall {

// Slices of received messages. Lets go of them as a message, all at once: gRPC 1.51 counts what it
// reads in the server's resource quota, and the last reference to a slice that is dropped by itself
// (grpc_slice_unref) may wake whoever waits for memory to come back on a thread that gRPC has not
// made ready for that, which ends the process by SIGSEGV. grpc_byte_buffer_destroy makes it ready.
class Slices {
 public:
  Slices() = default;
  Slices(std::initializer_list<grpc::Slice> slices) : slices_(slices) {}
  Slices(const Slices&) = default;
  Slices(Slices&&) = default;
  Slices& operator=(Slices other) noexcept {
    slices_.swap(other.slices_);
    return *this;
  }
  ~Slices() { Clear(); }

  void Add(grpc::Slice slice) { slices_.push_back(std::move(slice)); }
  // In place of what it held. False when the message's bytes are unreadable.
  bool TakeAllOf(const grpc::ByteBuffer& message);
  void Clear();

  size_t size() const { return slices_.size(); }
  const grpc::Slice& operator[](size_t i) const { return slices_[i]; }
  std::vector<grpc::Slice>::const_iterator begin() const { return slices_.begin(); }
  std::vector<grpc::Slice>::const_iterator end() const { return slices_.end(); }

 private:
  std::vector<grpc::Slice> slices_;
};

// Takes the slices of `message`, which must outlive the bytes of short ones. RESOURCE_EXHAUSTED
// when they are far more than a network makes of so many bytes: what is kept for each of them is
// not counted by anyone.
absl::Status DumpSlices(const grpc::ByteBuffer& message, Slices* slices);

// The bytes of `message`, copied into one string; empty when they are unreadable.
std::string Flat(const grpc::ByteBuffer& message);

// The bytes of a slice, which must stay where it is: short ones hold them in themselves.
inline wire::Bytes BytesOf(const grpc::Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

}  // namespace warpcall
