// One request of an ExecuteStream: its input bytes as they come, cut into windows of independent
// parts, each of which runs as a job of its own.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "proto/wire/chunk.h"
#include "server/engine/job.h"
#include "server/transport/chunk_assembler.h"
#include "server/transport/codec.h"
#include "server/transport/request.h"

namespace warpcall {

// Neighbouring parts of the problem, their inputs and, once they have run, their outputs.
struct Window {
  int64_t index = 0;
  int64_t first_part = 0;
  const Problem* problem = nullptr;
  absl::InlinedVector<Slices, 2> inputs;
  RequestTrace trace;
  JobKey key;
  enum class State : uint8_t { kPreparing, kToSubmit, kSubmitted, kRan };
  State state = State::kToSubmit;
  bool inputs_released = false;
  StagingBuffers outputs;
};

// Windows of one request: the input of one is being read, others are copied, computed and sent.
inline constexpr int64_t kWindowsUnderWayMax = 4;

// A stream that holds inflated input goes on with so many bytes within ExecuteDeps::send_ns_max.
inline constexpr int64_t kStreamProgressBytes = 1 << 20;

// Finds the member of a stream's message. `message` points into `slices`, and short slices into
// `bytes`. Errors as DumpSlices and SplitStreamRequest.
absl::Status SplitStreamMessage(const grpc::ByteBuffer& bytes, Slices* slices,
                                wire::StreamMessage* message);

class StreamRequest {
 public:
  StreamRequest(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                absl::StatusOr<Principal> caller, Request::Kind kind = Request::Kind::kKernel)
      : deps_(deps), request_(deps, context, std::move(caller), kind) {}

  // Reads the header, plans the windows, chooses row and device.
  absl::Status Open(const wire::FragmentedBytes& header);
  // Likewise a tensor that is to stay on `device`, with no bytes yet; `terms` were checked.
  absl::Status OpenPut(const TensorSpec& spec, const std::string& device,
                       const Residents::Terms& terms);
  // Likewise a tensor that is on a device, with all of its bytes.
  absl::Status OpenGet(const std::string& handle);
  // First message of the response.
  void DescribeOutputs(v1::ExecuteResponse* response);
  Request& request() { return request_; }

  // A chunk that lies in `slices`. INVALID_ARGUMENT for bytes that don't belong to an input or
  // come twice; RESOURCE_EXHAUSTED for more than kChunkBytesMax of them.
  absl::Status Add(const wire::ChunkView& chunk, const Slices& slices);
  // RESOURCE_EXHAUSTED when more than a window and the limit is held back because bytes before it,
  // or inputs that all windows share, are missing, or when it lies in more pieces than its size
  // allows.
  absl::Status CheckHeld();
  // Bytes of input that no window has taken for good: others have to come first.
  int64_t held_bytes() const;
  // Bytes of input that have come.
  int64_t received_bytes() const { return received_bytes_; }
  // RESOURCE_EXHAUSTED: what is held came compressed, and too little more comes.
  absl::Status Stalled();
  // INVALID_ARGUMENT, and which bytes, when input is missing.
  absl::Status CheckComplete() const;

  // The next window when all its bytes have come, otherwise null.
  std::unique_ptr<Window> TakeWindow();
  // A job for it, still without `cancelled` and callbacks; leaves the window's input in place.
  std::unique_ptr<Job> JobOf(Window* window);
  // Adds what the window's job took.
  void RecordRan(const Window& window);
  bool AllRan() const { return windows_ran_ == windows_; }
  bool AnyRan() const { return windows_ran_ > 0; }

  // Bytes before the window in output `output`.
  int64_t OutputOffset(const Window& window, size_t output) const;

  // Last message of the response, and the end of the request.
  absl::Status Describe(v1::ExecuteResponse* response);
  grpc::Status End(const absl::Status& status) { return request_.End(status); }

 private:
  absl::Status OpenHeader();
  absl::Status CheckResidents() const;
  absl::Status Plan();
  bool IsResident(size_t operand) const {
    return operand < request_.residents().size() && request_.residents()[operand] != nullptr;
  }
  // The least number of parts after which every operand on the device is aligned again.
  int64_t AlignedParts() const;
  // Bytes before the window in an operand of so many bytes, of which each part has its own.
  int64_t OffsetOf(const Window& window, size_t bytes) const;
  // At least one; see stream_window_bytes.
  int64_t PartsPerWindow() const;
  bool IsShared(size_t input) const;
  // Takes the next window's part of an input. REQUIRES: that part has come.
  Slices TakeInput(size_t input, int64_t bytes);
  // Returns RESOURCE_EXHAUSTED, marked never to be retried.
  static absl::Status TooMuch(const std::string& what);
  const Problem& ProblemOf(int64_t window) const { return window == windows_ - 1 ? last_ : full_; }

  ExecuteDeps* const deps_;
  Request request_;
  ExecuteCodec header_;
  Residents::Terms keep_terms_;
  int64_t parts_ = 0;
  int64_t parts_per_window_ = 0;
  int64_t windows_ = 0;
  int chosen_row_ = -1;  // that takes both
  Problem full_;         // all windows but the last
  Problem last_;
  int64_t held_bytes_max_ = 0;
  std::vector<ChunkAssembler> inputs_;
  // By input: of one that all windows share, its bytes, from the first window to the last.
  std::vector<Slices> shared_;
  int64_t received_bytes_ = 0;
  int64_t windows_taken_ = 0;
  int64_t windows_ran_ = 0;
};

}  // namespace warpcall
