// Kernels that follow each other on a stream; each reads the previous kernel's output and
// overwrites its input. No kernel may begin its work before the previous one has ended, however
// early it was launched. The results of a graph of them are compared bit by bit with the results of
// the kernels one at a time.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
constexpr int kLaunchPoison = 0x42;
// Numbers of bfloat16 elements: a few blocks, which leave room for all launches at once; a quarter
// of an H200's room; about all of it, with a tail; several times that.
constexpr int64_t kElementsOfElementwise[] = {1 << 14, 1 << 19, (1 << 21) + 5, 1 << 23};
// Elements in rows: a few blocks; half of an H200's room or less; about all of it or twice that.
constexpr int64_t kElementsOfRows[] = {1 << 14, 1 << 20, 1 << 22};

// Elements in whole rows of each length, where there is one.
std::vector<Dims> InRowsOf(std::initializer_list<int64_t> lengths) {
  std::vector<Dims> dims;
  for (const int64_t elements : kElementsOfRows)
    for (const int64_t length : lengths)
      if (length <= elements) dims.push_back({elements / length, length});
  return dims;
}

// Shapes to try an op on, of which every row that is launched early takes some. None: no row of the
// op is.
std::vector<Dims> DimsFor(absl::string_view op) {
  if (op == "softmax") return InRowsOf({33, 64, 250, 256, 1023, 4096, 131072, 262144});
  if (op == "layernorm" || op == "rmsnorm") return InRowsOf({1023, 4096});
  // Square weights: sums in parts, by clusters and without, and one wave of whole tiles.
  if (op == "matmul" || op == "linear") return {{16, 4096}, {64, 512}, {1024, 1024}};
  std::vector<Dims> dims;
  if (op != "gelu" && op != "identity") return dims;
  for (const int64_t elements : kElementsOfElementwise) dims.push_back({elements});
  return dims;
}

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

  std::unique_ptr<CudaDevice> device_;
  cuda::StreamHandle stream_;
  Registry registry_;
};

// A row's launches in pairs, the first from x to `between` and the second from there to y; two of x
// and two of y take turns. Each launch reads the previous one's output, the next overwrites it, and
// the values stay close to x: softmax of softmax of softmax is the same for every x.
class Chain {
 public:
  static absl::StatusOr<Chain> Create(PlanPtr plan, const Problem& problem, cudaStream_t stream) {
    Chain chain;
    chain.plan_ = std::move(plan);
    chain.bytes_ = problem.inputs[0].bytes();
    chain.stream_ = stream;
    for (DeviceArray* const array :
         {&chain.x_[0], &chain.x_[1], &chain.between_, &chain.y_[0], &chain.y_[1]}) {
      ASSIGN_OR_RETURN(*array, DeviceArray::Create(chain.bytes_));
    }
    ASSIGN_OR_RETURN(chain.workspace_, DeviceArray::Create(chain.plan_->traits().workspace_bytes));
    for (size_t i = 1; i < problem.inputs.size(); ++i) {
      ASSIGN_OR_RETURN(DeviceArray weights, DeviceArray::Create(problem.inputs[i].bytes()));
      chain.weights_.push_back(std::move(weights));
    }
    return chain;
  }

  absl::Status Fill(const Problem& problem) const {
    for (size_t i = 0; i < 2; ++i)
      RETURN_IF_ERROR(Upload(problem.inputs[0], absl::StrCat("x ", i), x_[i]));
    for (size_t i = 0; i < weights_.size(); ++i)
      RETURN_IF_ERROR(Upload(problem.inputs[i + 1], absl::StrCat("weights ", i), weights_[i]));
    return absl::OkStatus();
  }

  absl::Status Poison() const {
    for (const DeviceArray* const array : {&between_, &y_[0], &y_[1]})
      RETURN_IF_ERROR(
          ToStatus(cudaMemsetAsync(array->data(), kLaunchPoison, bytes_, stream_), "poisoning"));
    return absl::OkStatus();
  }

  absl::Status Enqueue(bool one_at_a_time) const {
    for (int i = 0; i < kLaunches; ++i) {
      const int turn = i / 2 % 2;
      const bool is_first = i % 2 == 0;
      Operands operands;
      operands.inputs.push_back((is_first ? x_[turn] : between_).data());
      for (const DeviceArray& weights : weights_) operands.inputs.push_back(weights.data());
      operands.outputs.push_back((is_first ? between_ : y_[turn]).data());
      RETURN_IF_ERROR(
          plan_->Enqueue(operands, {.stream = stream_, .workspace = workspace_.data()}));
      if (one_at_a_time) RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_), "waiting"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<char>> Results() const {
    std::vector<char> results(2 * bytes_);
    for (size_t i = 0; i < 2; ++i)
      RETURN_IF_ERROR(ToStatus(
          cudaMemcpy(results.data() + i * bytes_, y_[i].data(), bytes_, cudaMemcpyDefault), "out"));
    return results;
  }

 private:
  // Fills broadly, so that the places of softmax's ones identify x.
  static absl::Status Upload(const TensorSpec& spec, absl::string_view label,
                             const DeviceArray& array) {
    const Memory values = FilledInput(spec, warpcall::Fill::kBroad, label);
    return ToStatus(cudaMemcpy(array.data(), values.data(), spec.bytes(), cudaMemcpyDefault), "in");
  }

  PlanPtr plan_;
  size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  DeviceArray x_[2];
  DeviceArray between_;
  DeviceArray y_[2];
  DeviceArray workspace_;
  std::vector<DeviceArray> weights_;  // and biases, the same for all
};

// A row and a problem for it.
struct Candidate {
  std::string row;
  std::string dims;
  Problem problem;
  PlanPtr plan;
};

absl::StatusOr<Problem> ProblemWith(const Op& op, const Dims& dims) {
  std::vector<TensorSpec> inputs = {{DataType::kBFloat16, dims}};
  if (op.name == std::string("matmul") || op.name == std::string("linear"))
    inputs.push_back({DataType::kBFloat16, {dims.back(), dims.back()}});
  while (inputs.size() < op.input_names.size())
    inputs.push_back({DataType::kBFloat16, {dims.back()}});
  return MakeProblem(op, inputs, {});
}

std::vector<Candidate> Candidates(const Registry& registry, CudaDevice& device) {
  std::vector<Candidate> candidates;
  for (const Kernel& kernel : registry.kernels())
    for (const Dims& dims : DimsFor(kernel.op->name)) {
      const auto problem = ProblemWith(*kernel.op, dims);
      EXPECT_TRUE(problem.ok()) << problem.status();
      if (!problem.ok()) continue;
      for (const int id : kernel.rows) {
        const Implementation& row = registry.rows()[static_cast<size_t>(id)].implementation;
        if (row.family == Family::kLibrary) continue;  // libraries order their own launches
        if (!registry.Select(kernel, row.name, *problem, device.properties()).ok()) continue;
        const auto plan =
            row.plan(*problem, {.device = &device.properties(), .libraries = device.libraries()});
        if (absl::IsUnimplemented(plan.status())) continue;
        EXPECT_TRUE(plan.ok()) << row.name << ": " << plan.status();
        if (!plan.ok()) continue;
        candidates.push_back({absl::StrCat(kernel.op->name, " ", row.name),
                              ToString(problem->inputs[0]), *problem, *plan});
      }
    }
  return candidates;
}

// Expects launches in a row, with a graph and without, to give the results of one at a time.
void ExpectInOrder(const Chain& chain, cudaStream_t stream, const Graph& graph) {
  ASSERT_TRUE(chain.Poison().ok() && chain.Enqueue(true).ok());
  const auto expected = chain.Results();
  ASSERT_TRUE(expected.ok()) << expected.status();
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph.get(), 0), cudaSuccess);
  const cuda::GraphHandle owner(executable);
  for (int run = 0; run < 2 * kReplays; ++run) {
    const bool replayed = run < kReplays;
    ASSERT_TRUE(chain.Poison().ok());
    if (replayed)
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    else
      ASSERT_TRUE(chain.Enqueue(false).ok());
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const auto results = chain.Results();
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_TRUE(*results == *expected) << (replayed ? "in a graph" : "enqueued") << ", run " << run;
  }
}

// Edges of the graph from one launch to one that may begin early.
absl::StatusOr<int> EarlyEdges(const Graph& graph) {
  size_t edges = 0;
  RETURN_IF_ERROR(
      ToStatus(cudaGraphGetEdges(graph.get(), nullptr, nullptr, nullptr, &edges), "counting"));
  std::vector<cudaGraphNode_t> from(edges);
  std::vector<cudaGraphNode_t> to(edges);
  std::vector<cudaGraphEdgeData> data(edges);
  RETURN_IF_ERROR(ToStatus(
      cudaGraphGetEdges(graph.get(), from.data(), to.data(), data.data(), &edges), "asking"));
  return static_cast<int>(
      std::count_if(data.begin(), data.end(), [](const cudaGraphEdgeData& edge) {
        return edge.type == cudaGraphDependencyTypeProgrammatic;
      }));
}

// Mutants that turn it red: no wait in AwaitKernelAhead, or in the kernels of one row; a wait by
// the first warp alone.
TEST_F(LaunchOrderTest, EachFindsWhatTheOneAheadWrote) {
  for (const Candidate& candidate : Candidates(registry_, *device_)) {
    if (!IsSmallEnough(candidate.problem)) continue;
    SCOPED_TRACE(absl::StrCat(candidate.row, ", ", candidate.dims));
    const auto chain = Chain::Create(candidate.plan, candidate.problem, stream_.get());
    ASSERT_TRUE(chain.ok()) << chain.status();
    ASSERT_TRUE(chain->Fill(candidate.problem).ok());
    const auto graph = Capture([&] { return chain->Enqueue(false); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    ExpectInOrder(*chain, stream_.get(), *graph);
  }
}

// Or else nothing would be gained, and the test above would see no launch that is early.
TEST_F(LaunchOrderTest, GraphsHoldWhatWasLaunchedEarly) {
  if (device_->properties().architecture < cuda::kArchitectureOfEarlyLaunches)
    GTEST_SKIP() << "this device launches nothing early";
  std::set<std::string> early_rows;
  for (const Candidate& candidate : Candidates(registry_, *device_)) {
    SCOPED_TRACE(absl::StrCat(candidate.row, ", ", candidate.dims));
    const auto chain = Chain::Create(candidate.plan, candidate.problem, stream_.get());
    ASSERT_TRUE(chain.ok()) << chain.status();
    const auto graph = Capture([&] { return chain->Enqueue(false); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto early = EarlyEdges(*graph);
    ASSERT_TRUE(early.ok()) << early.status();
    if (*early == 0) continue;
    EXPECT_EQ(*early, kLaunches - 1);
    early_rows.insert(candidate.row);
  }
  std::set<std::string> expected = {"gelu vectorized",         "identity vector_copy",
                                    "layernorm block_per_row", "rmsnorm block_per_row",
                                    "softmax block_per_row",   "softmax cluster_per_row",
                                    "softmax subwarp_per_row", "softmax warp_per_row"};
  if (device_->properties().architecture == 90)  // rows made of its instructions
    expected.insert({"linear wgmma_tiled", "matmul wgmma_tiled"});
  EXPECT_EQ(early_rows, expected)
      << "`expected` names the rows whose grid is cuda::EarlyGridOf's; DimsFor has their shapes";
}

}  // namespace
}  // namespace warpcall::testing
