// Kernels that come one after the other on a stream, each of which takes what the one ahead wrote
// and overwrites what that read: none may begin its work before that one's has ended, however early
// it was launched. What a graph of them computes is compared bit by bit with what they compute one
// at a time.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/plan.h"
#include "kernels/registry.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cuda_device.h"
#include "server/runtime/cuda/cuda_handles.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"

namespace warpcall::testing {
namespace {

using cuda::ToStatus;

constexpr int kLaunches = 8;
constexpr int kReplays = 20;
constexpr int kPoison = 0x42;
// Of bfloat16, a few blocks, which leave room for all launches at once; a quarter of an H200's
// room; about all of it, with a tail; several times that.
constexpr int64_t kElements[] = {1 << 14, 1 << 19, (1 << 21) + 5, 1 << 23};

TEST(EarlyLaunchTest, NeedsADeviceThatCanAndCodeThatAwaits) {
  EXPECT_FALSE(cuda::CanBeLaunchedEarly(80, 80));
  EXPECT_FALSE(cuda::CanBeLaunchedEarly(89, 90));
  EXPECT_FALSE(cuda::CanBeLaunchedEarly(90, 80));  // a driver translated it
  EXPECT_FALSE(cuda::CanBeLaunchedEarly(120, 0));
  EXPECT_TRUE(cuda::CanBeLaunchedEarly(90, 90));
  EXPECT_TRUE(cuda::CanBeLaunchedEarly(120, 120));
}

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

class LaunchOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto count = CudaDevice::Count();
    if (!count.ok() || *count == 0) GTEST_SKIP() << "there is no GPU here";
    auto device = CudaDevice::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    ASSERT_TRUE(device_->MakeCurrent().ok());
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    stream_ = cuda::StreamHandle(stream);
    AddCudaKernels(&registry_);
  }

  absl::StatusOr<Graph> Capture(absl::FunctionRef<absl::Status()> enqueue) const {
    RETURN_IF_ERROR(ToStatus(
        cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "beginning"));
    absl::Status status = enqueue();
    cudaGraph_t graph = nullptr;
    status.Update(ToStatus(cudaStreamEndCapture(stream_.get(), &graph), "ending"));
    Graph owned(graph);
    RETURN_IF_ERROR(status);
    return owned;
  }

  absl::Status Finish() const {
    return ToStatus(cudaStreamSynchronize(stream_.get()), "waiting for the device");
  }

  std::unique_ptr<CudaDevice> device_;
  cuda::StreamHandle stream_;
  Registry registry_;
};

// A row's launches from x to a, from a to b, from b to a, and so on.
class Chain {
 public:
  static absl::StatusOr<Chain> Create(PlanPtr plan, const Problem& problem, cudaStream_t stream) {
    Chain chain;
    chain.plan_ = std::move(plan);
    chain.bytes_ = problem.inputs[0].bytes();
    chain.stream_ = stream;
    for (DeviceArray* const array : {&chain.x_, &chain.to_[0], &chain.to_[1]}) {
      ASSIGN_OR_RETURN(*array, DeviceArray::Create(chain.bytes_));
    }
    const Memory x = FilledInput(problem.inputs[0], Fill::kNormal, "x");
    RETURN_IF_ERROR(
        ToStatus(cudaMemcpy(chain.x_.data(), x.data(), chain.bytes_, cudaMemcpyDefault), "in"));
    return chain;
  }

  absl::Status Poison() const {
    for (const DeviceArray& array : to_)
      RETURN_IF_ERROR(
          ToStatus(cudaMemsetAsync(array.data(), kPoison, bytes_, stream_), "poisoning"));
    return absl::OkStatus();
  }

  absl::Status Enqueue(bool one_at_a_time) const {
    const void* from = x_.data();
    for (int i = 0; i < kLaunches; ++i) {
      void* const to = to_[i % 2].data();
      Operands operands;
      operands.inputs.push_back(from);
      operands.outputs.push_back(to);
      RETURN_IF_ERROR(plan_->Enqueue(operands, {.stream = stream_}));
      if (one_at_a_time) RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_), "waiting"));
      from = to;
    }
    return absl::OkStatus();
  }

  // What the two last launches left.
  absl::StatusOr<std::vector<char>> Results() const {
    std::vector<char> results(2 * bytes_);
    for (size_t i = 0; i < 2; ++i)
      RETURN_IF_ERROR(ToStatus(
          cudaMemcpy(results.data() + i * bytes_, to_[i].data(), bytes_, cudaMemcpyDefault),
          "out"));
    return results;
  }

 private:
  PlanPtr plan_;
  size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  DeviceArray x_;
  DeviceArray to_[2];
};

// Rows that lanes record, with a name for each.
struct Candidate {
  std::string name;
  Problem problem;
  PlanPtr plan;
};

std::vector<Candidate> Candidates(const Registry& registry, CudaDevice& device, int64_t elements) {
  std::vector<Candidate> candidates;
  for (const Kernel& kernel : registry.kernels()) {
    const absl::string_view name = kernel.op->name;
    if (name != "gelu" && name != "identity") continue;
    const auto problem = MakeProblem(*kernel.op, {{DataType::kBFloat16, {elements}}}, {});
    EXPECT_TRUE(problem.ok()) << problem.status();
    if (!problem.ok()) continue;
    for (const int id : kernel.rows) {
      const Implementation& row = registry.rows()[static_cast<size_t>(id)].implementation;
      if (!IsSmallEnough(*problem) || !row.supports(*problem, device.properties()).ok()) continue;
      const auto plan =
          row.plan(*problem, {.device = &device.properties(), .libraries = device.libraries()});
      EXPECT_TRUE(plan.ok()) << row.name << ": " << plan.status();
      if (!plan.ok() || !(*plan)->traits().may_be_replayed) continue;
      candidates.push_back({absl::StrCat(name, " ", row.name, ", ", elements), *problem, *plan});
    }
  }
  return candidates;
}

// Mutants that turn it red: no wait in AwaitKernelAhead; a wait by the first warp alone.
TEST_F(LaunchOrderTest, EachFindsWhatTheOneAheadWrote) {
  for (const int64_t elements : kElements)
    for (const Candidate& candidate : Candidates(registry_, *device_, elements)) {
      SCOPED_TRACE(candidate.name);
      const auto chain = Chain::Create(candidate.plan, candidate.problem, stream_.get());
      ASSERT_TRUE(chain.ok()) << chain.status();
      ASSERT_TRUE(chain->Poison().ok() && chain->Enqueue(true).ok());
      const auto expected = chain->Results();
      ASSERT_TRUE(expected.ok()) << expected.status();
      const auto enqueue = [&]() -> absl::Status {
        RETURN_IF_ERROR(chain->Poison());
        return chain->Enqueue(false);
      };
      const auto graph = Capture(enqueue);
      ASSERT_TRUE(graph.ok()) << graph.status();
      cudaGraphExec_t executable = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&executable, graph->get(), 0), cudaSuccess);
      const cuda::GraphHandle owner(executable);
      for (int run = 0; run < 2 * kReplays; ++run) {
        const bool replayed = run < kReplays;
        if (replayed)
          ASSERT_EQ(cudaGraphLaunch(executable, stream_.get()), cudaSuccess);
        else
          ASSERT_TRUE(enqueue().ok());
        ASSERT_TRUE(Finish().ok());
        ASSERT_TRUE(*chain->Results() == *expected)
            << (replayed ? "in a graph" : "enqueued") << ", run " << run;
      }
    }
}

// Or else nothing would be gained, and the test above would see no launch that is early.
TEST_F(LaunchOrderTest, GraphsHoldWhatWasLaunchedEarly) {
  if (device_->properties().architecture < cuda::kArchitectureOfEarlyLaunches)
    GTEST_SKIP() << "this device launches nothing early";
  int early_rows = 0;
  for (const Candidate& candidate : Candidates(registry_, *device_, kElements[0])) {
    SCOPED_TRACE(candidate.name);
    const auto chain = Chain::Create(candidate.plan, candidate.problem, stream_.get());
    ASSERT_TRUE(chain.ok()) << chain.status();
    const auto graph = Capture([&] { return chain->Enqueue(false); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    size_t edges = 0;
    ASSERT_EQ(cudaGraphGetEdges(graph->get(), nullptr, nullptr, nullptr, &edges), cudaSuccess);
    std::vector<cudaGraphNode_t> from(edges);
    std::vector<cudaGraphNode_t> to(edges);
    std::vector<cudaGraphEdgeData> data(edges);
    ASSERT_EQ(cudaGraphGetEdges(graph->get(), from.data(), to.data(), data.data(), &edges),
              cudaSuccess);
    const auto early = std::count_if(data.begin(), data.end(), [](const cudaGraphEdgeData& edge) {
      return edge.type == cudaGraphDependencyTypeProgrammatic;
    });
    if (early == 0) continue;
    EXPECT_EQ(early, kLaunches - 1);
    ++early_rows;
  }
  EXPECT_EQ(early_rows, 2);  // gelu's vectorized and identity's vector_copy
}

}  // namespace
}  // namespace warpcall::testing
