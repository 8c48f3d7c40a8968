#include "server/transport/graph_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/status_macros.h"
#include "server/engine/residents.h"
#include "tests/cpu_kernels.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;
using testing::CpuKernelsAndGraphs;

absl::StatusOr<Buffer> Allocate(size_t bytes) {
  return Buffer(std::malloc(bytes), bytes, [](void*, void* data, size_t) { std::free(data); },
                nullptr);
}

class GraphCodecTest : public ::testing::Test {
 protected:
  GraphCodecTest() : residents_({.timer = false}) {
    residents_.AddDevice({"cpu", DeviceKind::kCpu, 1 << 20});
  }
  ~GraphCodecTest() override {
    for (const Residents::Listed& listed : residents_.List("alice")) Free(listed.handle);
  }

  // A tensor of alice's.
  std::string Put(std::vector<int64_t> dims) {
    const TensorSpec spec{DataType::kFloat32, {dims.begin(), dims.end()}};
    const auto content = residents_.Reserve({"alice", 1 << 20}, spec, 0);
    EXPECT_TRUE(content.ok() && (*content)->Allocate(Allocate).ok());
    return residents_.Name(*content, {})->handle;
  }

  void Free(absl::string_view handle) { residents_.Free("alice", {&handle, 1}); }

  // a × b, of which b stays.
  v1::ExecuteGraphRequest Product(const std::string& handle) {
    v1::ExecuteGraphRequest request;
    v1::GraphInput* const a = request.add_inputs();
    a->set_name("a");
    a->mutable_tensor()->set_data_type(v1::DATA_TYPE_FLOAT32);
    a->mutable_tensor()->add_shape(2);
    a->mutable_tensor()->add_shape(4);
    a->mutable_tensor()->set_data(std::string(32, 'x'));
    v1::GraphInput* const b = request.add_inputs();
    b->set_name("b");
    b->mutable_tensor()->set_handle(handle);
    v1::GraphStep* const step = request.add_steps();
    step->set_name("y");
    step->set_kernel("matmul");
    step->add_inputs("a");
    step->add_inputs("b");
    request.add_outputs()->set_name("y");
    return request;
  }

  // The graph as a call reads it.
  absl::StatusOr<std::shared_ptr<const StepGraph>> Read(const v1::ExecuteGraphRequest& request,
                                                        const std::string& owner = "alice") {
    const std::string bytes = request.SerializeAsString();
    const wire::Bytes fragment = bytes;
    GraphCodec codec(&CpuKernelsAndGraphs(), &recent_);
    RETURN_IF_ERROR(codec.Decode(absl::MakeConstSpan(&fragment, 1)));
    RETURN_IF_ERROR(codec.FindResidents(&residents_, owner));
    CallSpec spec;
    ASSIGN_OR_RETURN(spec, codec.Spec());
    EXPECT_EQ(spec.steps.size(), static_cast<size_t>(request.steps_size()));
    EXPECT_EQ(spec.residents.size(), static_cast<size_t>(request.inputs_size()));
    const Op& op = *GraphKernel(CpuKernelsAndGraphs()).op;
    ASSIGN_OR_RETURN(const Problem problem, codec.ToProblem(op));
    ASSIGN_OR_RETURN(const JobInputs inputs, codec.Inputs(op, problem));
    EXPECT_EQ(inputs.size(), problem.inputs.size());
    return problem.graph;
  }
  std::string Refusal(const v1::ExecuteGraphRequest& request, const std::string& owner = "alice") {
    return std::string(Read(request, owner).status().message());
  }

  Residents residents_;
  RecentGraphs recent_;
};

TEST_F(GraphCodecTest, IsReadOnceWhateverItsData) {
  v1::ExecuteGraphRequest request = Product(Put({4, 3}));
  const auto first = Read(request);
  ASSERT_TRUE(first.ok()) << first.status();
  request.mutable_inputs(0)->mutable_tensor()->set_data(std::string(32, 'y'));
  EXPECT_EQ(*Read(request), *first);
}

TEST_F(GraphCodecTest, IsAnotherWhereAnythingButTheDataIs) {
  const v1::ExecuteGraphRequest request = Product(Put({4, 3}));
  const auto first = *Read(request);
  v1::ExecuteGraphRequest timed = request;
  timed.set_step_times(true);
  v1::ExecuteGraphRequest pinned = request;
  pinned.mutable_steps(0)->set_implementation("reference");
  v1::ExecuteGraphRequest moved = request;
  moved.mutable_inputs(1)->mutable_tensor()->set_handle(Put({4, 5}));
  for (const v1::ExecuteGraphRequest& other : {timed, pinned, moved}) {
    const auto read = Read(other);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_NE(*read, first) << other.ShortDebugString();
  }
  EXPECT_EQ((*Read(moved))->steps()[0].problem.outputs[0].dims[1], 5);
  EXPECT_EQ(*Read(request), first);
}

TEST_F(GraphCodecTest, EachRequestIsCheckedForItsDataItsOwnerAndItsTensors) {
  const std::string handle = Put({4, 3});
  const v1::ExecuteGraphRequest request = Product(handle);
  ASSERT_TRUE(Read(request).ok());
  v1::ExecuteGraphRequest more = request;
  more.mutable_inputs(0)->mutable_tensor()->set_data(std::string(36, 'x'));
  EXPECT_THAT(Refusal(more), HasSubstr("input \"a\": 36 bytes of data, but float32[2,4] takes 32"));
  v1::ExecuteGraphRequest both = request;
  both.mutable_inputs(1)->mutable_tensor()->set_data("1234");
  EXPECT_THAT(Refusal(both), HasSubstr("has both a handle and 4 bytes of data"));
  EXPECT_THAT(Refusal(request, "bob"), HasSubstr("a tensor is not on the server"));
  Free(handle);
  EXPECT_THAT(Refusal(request), HasSubstr("freed"));
}

TEST_F(GraphCodecTest, WhatIsRefusedIsNotKept) {
  v1::ExecuteGraphRequest request = Product(Put({5, 3}));
  const std::string refusal = Refusal(request);
  EXPECT_THAT(refusal, HasSubstr("step \"y\""));
  EXPECT_EQ(Refusal(request), refusal);
}

TEST_F(GraphCodecTest, LongHeadersAndManyAreReadAnew) {
  v1::ExecuteGraphRequest request = Product(Put({4, 3}));
  const auto first = *Read(request);
  for (size_t i = 0; i < RecentGraphs::kGraphsMax; ++i) {
    v1::ExecuteGraphRequest other = request;
    other.set_request_id(absl::StrCat(i));
    ASSERT_TRUE(Read(other).ok());
  }
  EXPECT_NE(*Read(request), first);
  request.set_request_id(std::string(RecentGraphs::kHeaderBytesMax, 'x'));
  EXPECT_NE(*Read(request), *Read(request));
}

// The graph with its rows is as recent as the request.
TEST_F(GraphCodecTest, RowsAreTakenOverWhereTheyAreTheSame) {
  const auto graph = *Read(Product(Put({4, 3})));
  const Registry& registry = CpuKernelsAndGraphs();
  const std::vector<int>& rows = (*registry.Find("matmul"))->rows;
  const Row* const one = &registry.rows()[static_cast<size_t>(rows[0])];
  const Row* const two = &registry.rows()[static_cast<size_t>(rows[1])];
  const auto with_one = graph->With({&one, 1});
  EXPECT_EQ(graph->With({&one, 1}), with_one);
  EXPECT_EQ(graph->With({&two, 1})->steps()[0].row, two);
  EXPECT_EQ(graph->With({&one, 1})->steps()[0].row, one);
}

}  // namespace
}  // namespace warpcall
