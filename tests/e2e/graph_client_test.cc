// Graphs as users have them: the C++ client and the command, against the real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"
#include "warpcall/client.h"
#include "warpcall/npy.h"

namespace warpcall::testing {
namespace {

using client::GraphRequest;
using client::Tensor;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Tensor RampTensor(std::vector<int64_t> shape, float step) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = step * (static_cast<float>(i % 17) - 8) / 17;
  return Tensor::FromFloats(std::move(shape), std::move(values));
}

class GraphClientTest : public ::testing::Test {
 protected:
  GraphRequest Layer(Tensor weight) const {
    return {.inputs = {{"x", x_}, {"w", std::move(weight)}, {"b", bias_}},
            .steps = {{.name = "h",
                       .kernel = "linear",
                       .implementation = "cpu",
                       .inputs = {"x", "w", "b"},
                       .attributes = {{"activation", "gelu"}}},
                      {.name = "y", .kernel = "softmax", .implementation = "cpu", .inputs = {"h"}}},
            .outputs = {{.name = "y"}}};
  }
  // The same by a call for each step.
  std::vector<float> ByCalls() {
    const auto h = client_.Execute({.kernel = "linear",
                                    .inputs = {x_, weight_, bias_},
                                    .attributes = {{"activation", "gelu"}},
                                    .options = {.implementation = "cpu"}});
    EXPECT_TRUE(h.ok()) << h.status();
    const auto y = client_.Softmax(h->outputs[0], -1, {.implementation = "cpu"});
    EXPECT_TRUE(y.ok()) << y.status();
    return y->outputs[0].ToFloats();
  }
  void ExpectInvalid(const GraphRequest& request, const std::string& begin) {
    const auto response = client_.ExecuteGraph(request);
    EXPECT_TRUE(absl::IsInvalidArgument(response.status())) << response.status();
    EXPECT_THAT(std::string(response.status().message()), StartsWith(begin));
  }
  ProgramResult Warpcall(const std::string& arguments) const {
    return RunProgram(absl::StrCat("cd '", folder_.Path(""), "' && '", ProgramPath("warpcall"),
                                   "' --server ", server_.address(), " ", arguments));
  }

  const Tensor x_ = RampTensor({6, 40}, 1);
  const Tensor weight_ = RampTensor({24, 40}, 0.5);
  const Tensor bias_ = RampTensor({24}, 2);
  ServerProcess server_{
      std::vector<std::string>{"--devices=cpu", "--self_test=off", "--resident_mib=1"}};
  client::Client client_{server_.address()};
  TempFolder folder_;
};

TEST_F(GraphClientTest, AGraphIsWhatItsStepsAre) {
  GraphRequest request = Layer(weight_);
  request.step_times = true;
  const auto response = client_.ExecuteGraph(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs.size(), 1u);
  EXPECT_THAT(response->outputs[0].shape(), ElementsAre(6, 24));
  EXPECT_EQ(response->outputs[0].ToFloats(), ByCalls());
  ASSERT_EQ(response->steps.size(), 2u);
  EXPECT_EQ(response->steps[0].name, "h");
  EXPECT_EQ(response->steps[1].implementation, "cpu");
  EXPECT_GT(response->steps[0].kernel_ns, 0);
  EXPECT_GT(response->steps[0].launch.flops, 0);
  EXPECT_GT(response->timing.kernel_ns, 0);
  EXPECT_EQ(response->device, "cpu");
  EXPECT_FALSE(response->request_id.empty());
  EXPECT_GE(response->intermediate_bytes, 6 * 24 * 4);
  EXPECT_EQ(response->resident_bytes, 0);
  EXPECT_FALSE(response->replayed);
}

TEST_F(GraphClientTest, KeptOutputsAndResidentsStayOnTheDevice) {
  const auto weight = client_.Put(weight_);
  ASSERT_TRUE(weight.ok()) << weight.status();
  GraphRequest request = Layer(weight->tensor);
  request.outputs = {{.name = "h", .keep = true, .ttl = absl::Hours(1), .label = "hidden"},
                     {.name = "y"}};
  const auto response = client_.ExecuteGraph(request);
  ASSERT_TRUE(response.ok()) << response.status();
  const Tensor& h = response->outputs[0];
  EXPECT_TRUE(h.is_resident());
  EXPECT_EQ(response->resident_bytes, 24 * 40 * 4 + 6 * 24 * 4);
  const auto y = client_.Softmax(h, -1, {.implementation = "cpu"});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->outputs[0].ToFloats(), response->outputs[1].ToFloats());
  bool found = false;
  const auto tensors = client_.ListTensors();
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  for (const client::TensorInfo& info : *tensors)
    if (info.handle == h.handle()) found = info.label == "hidden";
  EXPECT_TRUE(found);
}

TEST_F(GraphClientTest, WhatTheServerLostIsPutAgain) {
  const auto weight = client_.Put(weight_, {.evictable = true});
  ASSERT_TRUE(weight.ok()) << weight.status();
  const std::string handle = weight->tensor.handle();
  const auto all = client_.Put(RampTensor({1 << 18}, 1));  // takes all room
  ASSERT_TRUE(all.ok()) << all.status();
  const std::string handles[] = {all->tensor.handle()};
  ASSERT_TRUE(client_.Free(handles).ok());
  const auto response = client_.ExecuteGraph(Layer(weight->tensor));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outputs[0].ToFloats(), ByCalls());
  EXPECT_NE(weight->tensor.handle(), handle);
}

TEST_F(GraphClientTest, ErrorsNameTheStepInputOrOutput) {
  GraphRequest request = Layer(weight_);
  request.steps[1].inputs = {"h", "x"};
  ExpectInvalid(request, "step \"y\": ");
  request = Layer(weight_);
  request.steps[0].attributes["activatoin"] = "gelu";
  ExpectInvalid(request, "step \"h\": ");
  request = Layer(weight_);
  request.inputs.push_back({"unused", x_});
  ExpectInvalid(request, "input \"unused\": ");
  request = Layer(weight_);
  request.outputs.push_back({.name = "x"});
  ExpectInvalid(request, "output \"x\": ");
}

TEST_F(GraphClientTest, TheCommandRunsAFile) {
  ASSERT_TRUE(client::WriteNpy(folder_.Path("x.npy"), x_).ok());
  ASSERT_TRUE(client::WriteNpy(folder_.Path("b.npy"), bias_).ok());
  const auto weight = client_.Put(weight_);
  ASSERT_TRUE(weight.ok()) << weight.status();
  std::ofstream(folder_.Path("layer.json")) << R"({
    "steps": [{"name": "h", "kernel": "linear", "implementation": "cpu", "inputs": ["x", "w", "b"],
               "attributes": {"activation": "gelu"}},
              {"name": "y", "kernel": "softmax", "implementation": "cpu", "inputs": ["h"]}],
    "outputs": ["y"]})";
  const std::string line =
      absl::StrCat("graph layer.json --input x=x.npy --input b=b.npy --input w=@",
                   weight->tensor.handle(), " --output y.npy --step-times");
  const ProgramResult run = Warpcall(line);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("2 steps on cpu, request "));
  EXPECT_EQ(client::ReadNpy(folder_.Path("y.npy"))->ToFloats(), ByCalls());
  const json result = json::parse(Warpcall(line + " --json").out, nullptr, false);
  ASSERT_TRUE(result.is_object());
  EXPECT_EQ(result["resident_bytes"], 24 * 40 * 4);
  EXPECT_GT(result["steps"][0]["kernel_ns"], 0);
}

}  // namespace
}  // namespace warpcall::testing
