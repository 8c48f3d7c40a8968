// `warpcall push` as users run it, against a server whose events the test decides.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "tests/client/cli/cli_fixture.h"
#include "tests/e2e/child_process.h"

namespace warpcall::cli {

using testing::PushStreamCall;

inline void WriteEvent(const std::string& event, const PushStreamCall& call) {
  v1::PushEvent message;
  testing::Merge(event, &message);
  call.writer->Write(message);
}

// The events of a push that passes, before its verdict.
inline constexpr const char* kGoodEvents[] = {
    "queued { before: 2 }",
    R"(compiled { compile_ns: 113000000 log: "my.cu(9): warning #177-D: unused \"n\"\n"
                  registers_per_thread: 32 shared_memory_bytes: 4096 theoretical_occupancy: 0.75
                  digest: "00ff" data_type: DATA_TYPE_FLOAT32 kernel: "my_softmax"
                  arch: "sm_90a" })",
    R"(checked { problem { inputs { data_type: DATA_TYPE_FLOAT32 shape: 4096 shape: 1024 }
                           attributes { key: "axis" value { int_value: -1 } } }
                 passed: true max_error: 0.25 checked_elements: 4194304 fill: "normal"
                 max_absolute_error: 1e-8 max_relative_error: 1e-7
                 histogram: 0 histogram: 0 histogram: 4000000 histogram: 194304 })",
    R"(timed { problem { inputs { data_type: DATA_TYPE_FLOAT32 shape: 4096 shape: 1024 } }
               results { implementation: "pushed" median_ns: 10000 min_ns: 9000
                         median_low_ns: 9900 median_high_ns: 10100 noise: 0.002
                         bytes_per_second: 3.2e12 flops_per_second: 2e12 fraction_of_ceiling: 0.8
                         iterations: 100 launch { bytes_moved: 33554432 flops: 20971520 } }
               results { implementation: "cudnn" family: "library" median_ns: 12000 min_ns: 11000
                         median_low_ns: 11900 median_high_ns: 12100 noise: 0.004
                         bytes_per_second: 2.7e12 flops_per_second: 1.7e12
                         fraction_of_ceiling: 0.675 iterations: 100
                         launch { bytes_moved: 33554432 flops: 20971520 } }
               results { implementation: "triton" family: "triton" error: "takes rows only" }
               ceiling_bytes_per_second: 4e12 flops_ceiling: 5e13 floor_ns: 8000 cold: true })"};
inline constexpr char kPassedVerdict[] =
    R"(verdict { status: "PASSED" name: "push:my_softmax@00ff" speedup: 1.2 seed: 7 digest: "00ff"
                 deterministic: true
                 stamp { device_description: "NVIDIA H200" driver: "580.1" cuda: "13.0"
                         server_version: "0.1.0" started_unix_ns: 1700000000000000000 } })";

// A push that passes.
inline FakeAnswer PassEvents(const PushStreamCall& call) {
  for (const char* const event : kGoodEvents) WriteEvent(event, call);
  WriteEvent(kPassedVerdict, call);
  return {};
}

class PushCliTest : public CliTest {
 protected:
  PushCliTest() {
    ListSoftmaxAndMatmul();
    WriteText(cu_, kCode);
    server_.AnswerPush([this](const PushStreamCall& call) {
      testing::PushHandler answer;
      {
        absl::MutexLock lock(&mutex_);
        requests_.push_back(call.request);
        answer = answer_;
      }
      return answer(call);
    });
  }

  static void WriteText(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  void Answer(testing::PushHandler answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }
  // Answers with these events and then OK.
  void AnswerEvents(const std::vector<std::string>& events) {
    Answer([events](const PushStreamCall& call) {
      for (const std::string& event : events) WriteEvent(event, call);
      return FakeAnswer{};
    });
  }
  // The requests since the last call.
  std::vector<v1::PushRequest> TakeRequests() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(requests_, {});
  }
  size_t requests() {
    absl::MutexLock lock(&mutex_);
    return requests_.size();
  }
  ProgramResult Push(const std::string& arguments = "") {
    return Warpcall(absl::StrCat("push ", cu_, " ", arguments));
  }
  // Starts a push with stdout in out_ and stderr in err_.
  testing::ChildProcess Start(const std::string& arguments) {
    return testing::ChildProcess({"/bin/sh", "-c",
                                  absl::StrCat("COLUMNS=200 WARPCALL_SERVER=", server_.address(),
                                               " exec '", testing::ProgramPath("warpcall"),
                                               "' push ", cu_, " ", arguments, " >", out_)},
                                 err_);
  }
  static bool Says(const std::string& path, const std::string& text) {
    return Eventually([&] { return absl::StrContains(ReadFile(path), text); });
  }

  static constexpr char kCode[] = R"(// warpcall-kernel {
//   "name": "my_softmax", "op": "softmax", "types": ["float32", "float16"],
//   "code": {"kind": "cuda", "entry": "my_softmax"},
//   "args": ["x.ptr", "y.ptr", "cols:i32"],
//   "launch": {"grid": ["rows"], "block": [128]}
// }
extern "C" __global__ void my_softmax(const T* x, T* y, int cols) {}
)";
  const std::string cu_ = folder_.Path("my.cu");
  const std::string out_ = folder_.Path("out");
  const std::string err_ = folder_.Path("err");

 private:
  absl::Mutex mutex_;
  testing::PushHandler answer_ ABSL_GUARDED_BY(mutex_) = PassEvents;
  std::vector<v1::PushRequest> requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::cli
