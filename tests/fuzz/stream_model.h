// The inputs of a stream as an oracle sees them: which bytes have come, and which chunk may come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {

// Reads the rank and the dimensions of a tensor, some of them impossible.
void ReadShape(FuzzInput* decisions, v1::Tensor* tensor);
// -1 for more than a run can send.
int64_t SendableBytes(const v1::Tensor& tensor);

// By default, chunks carry the model's own bytes.
class StreamModel {
 public:
  // REQUIRES: all inputs are sendable.
  explicit StreamModel(const v1::ExecuteRequest& header);

  size_t inputs() const { return came_.size(); }
  int64_t bytes(size_t input) const { return static_cast<int64_t>(came_[input].size()); }
  int64_t CameBytes(size_t input) const;
  // First byte of `input` that has not come.
  int64_t Gap(size_t input) const;
  std::string Data(size_t input, int64_t offset, int64_t bytes) const;
  bool Complete() const;
  // Returns true if the chunk may come, and adds it.
  bool Add(const v1::Chunk& chunk);
  // The request with all data: those of chunks, and the model's own.
  const v1::ExecuteRequest& whole() const { return whole_; }

 private:
  v1::ExecuteRequest whole_;
  std::vector<std::vector<bool>> came_;
};

// An encoded message of a stream: most are chunks, of an ExecuteStreamRequest or PutRequest, others
// any bytes.
std::string MakeStreamMessage(FuzzInput* decisions, const StreamModel& model);

}  // namespace warpcall::testing
