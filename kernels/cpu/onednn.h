// Code shared by the oneDNN implementations: the engine's types and the border that
// oneDNN's exceptions do not cross. oneDNN caches primitives itself, so every launch
// creates them. Its threads are OpenMP's: a team for each calling thread, and guests of the
// device's pool.
#pragma once

#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "oneapi/dnnl/dnnl_debug.h"

namespace warpcall::onednn {

inline dnnl::memory::data_type ToOnednn(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return dnnl::memory::data_type::f32;
    case DataType::kFloat16:
      return dnnl::memory::data_type::f16;
    case DataType::kBFloat16:
      return dnnl::memory::data_type::bf16;
  }
  AbortOnDataType(type);
}

// `elements` in a row, whatever their shape was.
inline dnnl::memory::desc Flat(DataType type, int64_t elements) {
  return {{elements}, ToOnednn(type), dnnl::memory::dims{1}};
}

// Runs `body`, which uses oneDNN; what it throws comes back as a Status that opens with `what`.
template <typename Body>
absl::Status Guard(absl::StatusCode code, absl::string_view what, Body&& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    return absl::Status(code, absl::StrCat(what, ": oneDNN says \"", error.what(), "\" (status ",
                                           dnnl_status2str(error.status), ")"));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory in oneDNN"));
  }
}

// OK when `describe` creates a descriptor of `primitive` for `spec`, UNIMPLEMENTED when oneDNN
// throws.
template <typename Describe>
absl::Status CheckHas(absl::string_view primitive, const TensorSpec& spec, Describe&& describe) {
  return Guard(absl::StatusCode::kUnimplemented,
               absl::StrCat("no ", primitive, " for ", ToString(spec), " on this CPU"), describe);
}

// Executes `primitive` from `source` to `destination` and waits.
inline void Execute(const dnnl::primitive& primitive, const dnnl::memory& source,
                    const dnnl::memory& destination) {
  dnnl::stream stream(source.get_engine());
  primitive.execute(stream, {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, destination}});
  stream.wait();
}

// Work that pays for one oneDNN thread, some 25 us: elements read and written once, or products of
// a matmul.
inline constexpr int64_t kElementsWorthAThread = 32 * 1024;
inline constexpr int64_t kProductsWorthAThread = 1024 * 1024;

// Returns how many of `threads_max` threads share `work`; at least 1.
int ThreadsFor(int64_t work, int64_t work_per_thread, int threads_max);

// Limits the calling thread's teams from here on, to no more than OpenMP has. oneDNN looks both
// when it creates a primitive and when it executes it, with no more than it was created for.
void UseThreads(int threads);

// The calling thread's team, while this object lives: as many threads as share `work`, out of the
// device's threads for all its launches. Threads that end a step together cost microseconds, or
// milliseconds if one of them waits for a core: 64 x 64 elements of softmax took 4.9 us on one
// thread, 5.0 to 9.2 on two, and 14 ms on a busy machine.
class Team {
 public:
  Team(const LaunchContext& context, int64_t work, int64_t work_per_thread);
  Team(const LaunchContext& context, const cpu::ThreadPool::Guest::Wish& wish);

 private:
  cpu::ThreadPool::Guest guest_;
};

// The CPU's engine: the first thing to ask oneDNN for. Throws dnnl::error.
dnnl::engine CpuEngine();

}  // namespace warpcall::onednn
