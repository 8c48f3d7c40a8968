// Measures graphs of kernels: replayed as a recording, launched step by step, and against the same
// kernels called one by one. The contenders take turns. tests/bench/graph_peers.py measures other
// libraries at the same graphs.
//
//   graph_bench [--quick] [DEVICE]     default: the server's choice
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/common/status_macros.h"
#include "tests/bench/transport_caller.h"
#include "tests/bench/transport_echo.h"
#include "tests/e2e/child_process.h"
#include "tests/e2e/server_process.h"
#include "warpcall/client.h"

namespace warpcall::bench {
namespace {

using client::Tensor;

constexpr int kRounds = 20;
constexpr int kWarmupCalls = 6;  // of each contender in each round: the recording is among them

struct Sizes {
  int64_t features = 1024;
  int calls = 400;  // of each contender
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double Us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

// One contender's times of one graph.
struct Times {
  std::vector<double> device_us;
  std::vector<double> server_us;  // from the request's first byte to its answer
  std::vector<double> call_us;
};

void PrintRow(const std::string& graph, const char* contender, const Times& times) {
  const auto cell = [](const std::vector<double>& us) {
    return us.empty() ? std::string("–") : absl::StrCat(std::round(Median(us) * 10) / 10);
  };
  std::printf("| %s | %s | %s | – | %s | %s |\n", graph.c_str(), contender,
              cell(times.device_us).c_str(), cell(times.server_us).c_str(),
              cell(times.call_us).c_str());
}

// A graph and its tensors.
struct Case {
  std::string name;
  client::GraphRequest request;  // weights by handle
  std::vector<std::string> handles;
};

class GraphBench {
 public:
  GraphBench(Sizes sizes, std::string device) : sizes_(sizes), device_(std::move(device)) {}

  absl::Status Run() {
    const std::string own_program = std::filesystem::read_symlink("/proc/self/exe").string();
    testing::ChildProcess echo({own_program, "--serve_echo", "127.0.0.1:0"}, "");
    const std::string& line = echo.first_line();  // "echo: serving on ADDRESS"
    echo_address_ = line.substr(line.rfind(' ') + 1);
    testing::ServerProcess server({"--log_level=warning"});
    server.AwaitRows();
    client_ = std::make_unique<client::Client>(server.address());
    std::printf(
        "| graph | contender | device, us | in a row, us | in the server, us | call, us |\n"
        "|---|---|---|---|---|---|\n");
    RETURN_IF_ERROR(MeasureLayers());
    RETURN_IF_ERROR(MeasureBlock());
    RETURN_IF_ERROR(MeasureSmallSteps());
    const int status = server.Stop();
    if (status == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the server ended with ", status, ": ", server.log()));
  }

 private:
  // N(0, 1) times `scale`.
  Tensor Random(std::vector<int64_t> shape, float scale) {
    std::normal_distribution<float> normal;
    size_t elements = 1;
    for (const int64_t dim : shape) elements *= static_cast<size_t>(dim);
    std::vector<float> values(elements);
    for (float& value : values) value = scale * normal(random_);
    return Tensor::FromFloats(DataType::kBFloat16, std::move(shape), values);
  }

  // Adds an input that stays on the device.
  absl::Status AddWeight(const std::string& name, std::vector<int64_t> shape, Case* graph) {
    const float scale = 1.0F / std::sqrt(static_cast<float>(shape.back()));
    const Tensor weight = Random(std::move(shape), scale);
    ASSIGN_OR_RETURN(const client::Resident kept, client_->Put(weight, {.device = device_}));
    graph->request.inputs.push_back({name, kept.tensor});
    graph->handles.push_back(kept.tensor.handle());
    return absl::OkStatus();
  }

  absl::Status Execute(const client::GraphRequest& request, bool is_counted, Times* times) {
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(last_, client_->ExecuteGraph(request));
    if (!is_counted) return absl::OkStatus();
    times->call_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
    times->server_us.push_back(Us(last_.timing.total_ns));
    times->device_us.push_back(Us(last_.timing.kernel_ns));
    return absl::OkStatus();
  }

  // Runs that nothing repeats: an operand lies elsewhere each time.
  absl::Status Launched(client::GraphRequest request, Case* graph, Times* times) {
    ASSIGN_OR_RETURN(const Tensor last, client_->Get(graph->handles.back()));
    for (int i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const client::Resident moved, client_->Put(last, {.device = device_}));
      graph->handles.insert(graph->handles.begin(), moved.tensor.handle());
      request.inputs.back().tensor = moved.tensor;
      for (int run = 0; run < 2; ++run) RETURN_IF_ERROR(Execute(request, run > 0, times));
    }
    return absl::OkStatus();
  }

  // The least that a call does with as many bytes.
  absl::Status Identity(const Tensor& x, Times* times) {
    client::Call call{.kernel = "identity", .inputs = {x}};
    call.options.device = device_;
    for (int i = 0; i < sizes_.calls / kRounds; ++i) {
      const absl::Time start = absl::Now();
      ASSIGN_OR_RETURN(const client::Result result, client_->Execute(call));
      times->call_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
      times->server_us.push_back(Us(result.timing.total_ns));
      times->device_us.push_back(Us(result.timing.kernel_ns));
    }
    return absl::OkStatus();
  }

  // With step_times a graph is launched and each step has a time of its own.
  absl::Status Timed(const client::GraphRequest& request, bool is_counted, Times* times) {
    ASSIGN_OR_RETURN(const client::GraphResponse response, client_->ExecuteGraph(request));
    if (!is_counted) return absl::OkStatus();
    double sum = 0;
    for (const client::GraphStepResult& step : response.steps) sum += Us(step.kernel_ns);
    times->device_us.push_back(sum);
    return absl::OkStatus();
  }

  // Every step by a call of its own, the results sent back and forth; `weights` replace the handles
  // unless it is empty.
  absl::Status Chain(const Case& graph, const std::vector<Tensor>& weights, Times* times) {
    std::vector<std::pair<std::string, Tensor>> values;
    for (size_t i = 0; i < graph.request.inputs.size(); ++i) {
      const bool is_sent = i > 0 && !weights.empty();
      values.emplace_back(graph.request.inputs[i].name,
                          is_sent ? weights[i - 1] : graph.request.inputs[i].tensor);
    }
    double device_us = 0;
    const absl::Time start = absl::Now();
    for (const client::GraphStep& step : graph.request.steps) {
      client::Call call{.kernel = step.kernel, .attributes = step.attributes};
      call.options.device = device_;
      for (const std::string& name : step.inputs)
        call.inputs.push_back(std::find_if(values.begin(), values.end(), [&](const auto& value) {
                                return value.first == name;
                              })->second);
      ASSIGN_OR_RETURN(client::Result result, client_->Execute(call));
      device_us += Us(result.timing.kernel_ns);
      values.emplace_back(step.name, std::move(result.outputs[0]));
    }
    times->call_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
    times->device_us.push_back(device_us);
    if (values.back().second.data() != last_.outputs[0].data())
      return absl::DataLossError("the graph's output is not that of its steps one by one");
    return absl::OkStatus();
  }

  // Replayed, launched and step by step, in turns; prints a row for each.
  absl::Status Measure(Case graph, const std::vector<Tensor>& weights) {
    client::GraphRequest timed = graph.request;
    timed.step_times = true;
    ASSIGN_OR_RETURN(
        const std::unique_ptr<Caller> echo,
        NewCaller({.kind = ContenderKind::kEcho,
                   .address = echo_address_,
                   .call = {.kernel = "identity", .inputs = {graph.request.inputs[0].tensor}}}));
    Times replayed;
    Times launched;
    Times steps;
    Times by_handle;
    Times sent;
    Times identity;
    Times echoed;
    bool is_replayed = false;
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kWarmupCalls + sizes_.calls / kRounds; ++i)
        RETURN_IF_ERROR(Execute(graph.request, i >= kWarmupCalls, &replayed));
      is_replayed = last_.replayed;
      for (int i = 0; i < kWarmupCalls + sizes_.calls / kRounds; ++i)
        RETURN_IF_ERROR(Timed(timed, i >= kWarmupCalls, &steps));
      RETURN_IF_ERROR(Chain(graph, {}, &by_handle));
      RETURN_IF_ERROR(Launched(graph.request, &graph, &launched));
      if (!weights.empty()) RETURN_IF_ERROR(Chain(graph, weights, &sent));
      RETURN_IF_ERROR(Identity(graph.request.inputs[0].tensor, &identity));
      for (int i = 0; i < sizes_.calls / kRounds; ++i) {
        const absl::Time start = absl::Now();
        RETURN_IF_ERROR(echo->Call());
        echoed.call_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
      }
    }
    PrintRow(graph.name, is_replayed ? "Warpcall, replayed" : "Warpcall", replayed);
    PrintRow(graph.name, "Warpcall, launched", launched);
    PrintRow(graph.name, "its steps, timed one by one", steps);
    PrintRow(graph.name, "a call for each step", by_handle);
    if (!weights.empty()) PrintRow(graph.name, "a call for each step, weights sent", sent);
    PrintRow(graph.name, "identity of the input, by Execute", identity);
    PrintRow(graph.name, "gRPC echo of the input", echoed);
    std::fflush(stdout);
    return client_->Free(graph.handles).status();
  }

  Case Begin(std::string name, int64_t rows) {
    Case graph{.name = std::move(name), .request = {}, .handles = {}};
    graph.request.device = device_;
    graph.request.inputs.push_back({"x", Random({rows, sizes_.features}, 1)});
    return graph;
  }

  absl::Status MeasureLayers() {
    const int64_t n = sizes_.features;
    Case graph = Begin(absl::StrCat("8 × linear with gelu, 128×", n), 128);
    std::string before = "x";
    std::vector<Tensor> weights;
    for (int layer = 0; layer < 8; ++layer) {
      const std::string w = absl::StrCat("w", layer);
      const std::string b = absl::StrCat("b", layer);
      RETURN_IF_ERROR(AddWeight(w, {n, n}, &graph));
      RETURN_IF_ERROR(AddWeight(b, {n}, &graph));
      for (size_t i = graph.handles.size() - 2; i < graph.handles.size(); ++i) {
        ASSIGN_OR_RETURN(weights.emplace_back(), client_->Get(graph.handles[i]));
      }
      const std::string name = absl::StrCat("h", layer);
      graph.request.steps.push_back({.name = name,
                                     .kernel = "linear",
                                     .inputs = {before, w, b},
                                     .attributes = {{"activation", std::string("gelu")}}});
      before = name;
    }
    graph.request.outputs.push_back({.name = before});
    return Measure(std::move(graph), weights);
  }

  absl::Status MeasureBlock() {
    const int64_t n = sizes_.features;
    Case graph =
        Begin(absl::StrCat("512 × (", n, " → ", 4 * n, " → ", n, "), residual, layernorm"), 512);
    RETURN_IF_ERROR(AddWeight("w0", {4 * n, n}, &graph));
    RETURN_IF_ERROR(AddWeight("b0", {4 * n}, &graph));
    RETURN_IF_ERROR(AddWeight("w1", {n, 4 * n}, &graph));
    RETURN_IF_ERROR(AddWeight("b1", {n}, &graph));
    RETURN_IF_ERROR(AddWeight("scale", {n}, &graph));
    RETURN_IF_ERROR(AddWeight("shift", {n}, &graph));
    graph.request.steps = {
        {.name = "h",
         .kernel = "linear",
         .inputs = {"x", "w0", "b0"},
         .attributes = {{"activation", std::string("gelu")}}},
        {.name = "y", .kernel = "linear", .inputs = {"h", "w1", "b1"}},
        {.name = "sum",
         .kernel = "fused",
         .inputs = {"x", "y"},
         .attributes = {{"expression", std::string("x0 + x1")}}},
        {.name = "out", .kernel = "layernorm", .inputs = {"sum", "scale", "shift"}}};
    graph.request.outputs.push_back({.name = "out"});
    return Measure(std::move(graph), {});
  }

  absl::Status MeasureSmallSteps() {
    const int64_t n = sizes_.features;
    Case graph = Begin(absl::StrCat("5 small steps, 64×", n), 64);
    RETURN_IF_ERROR(AddWeight("scale", {n}, &graph));
    graph.request.steps = {{.name = "a", .kernel = "gelu", .inputs = {"x"}},
                           {.name = "b", .kernel = "rmsnorm", .inputs = {"a", "scale"}},
                           {.name = "c", .kernel = "gelu", .inputs = {"b"}},
                           {.name = "d", .kernel = "softmax", .inputs = {"c"}},
                           {.name = "e", .kernel = "gelu", .inputs = {"d"}}};
    graph.request.outputs.push_back({.name = "e"});
    return Measure(std::move(graph), {});
  }

  const Sizes sizes_;
  const std::string device_;
  std::mt19937_64 random_{1};
  std::string echo_address_;
  std::unique_ptr<client::Client> client_;
  client::GraphResponse last_;
};

int Main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--serve_echo") == 0) ServeEcho({"echo", argv[2]});
  Sizes sizes;
  std::string device;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      sizes = {.features = 64, .calls = 20};
    } else {
      device = argv[i];
    }
  }
  const absl::Status status = GraphBench(sizes, device).Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) { return warpcall::bench::Main(argc, argv); }
