// `warpcall graph`: its file, its inputs and outputs, what it prints, and --describe.
#include <fstream>
#include <string>
#include <vector>

#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kTwoSteps[] = R"({
  "steps": [
    {"name": "h", "kernel": "linear", "inputs": ["x", "w1"],
     "attributes": {"activation": "gelu", "axis": -1, "exact": true, "scale": 0.5}},
    {"name": "y", "kernel": "gelu", "implementation": "cpu", "inputs": ["h"]}
  ],
  "outputs": ["y", {"name": "h", "keep": true, "ttl": "90s", "label": "hidden"}]
})";

FakeAnswer TwoSteps(const v1::DescribeRequest&, v1::DescribeResponse* response) {
  testing::Merge(R"(device: 'cpu' launch { bytes_moved: 300 flops: 14 } workspace_bytes: 9
                    intermediate_bytes: 4160
                    steps { name: 'h' kernel: 'linear' implementation: 'chosen' result_bytes: 4096
                            launch { variant: 'fast' flops: 7 } is_intermediate: true
                            fuses_with: 'y' fused_saves_bytes: 8192 }
                    steps { name: 'y' kernel: 'gelu' implementation: 'cpu' result_bytes: 16 })",
                 response);
  return {};
}

class CliGraphTest : public CliTest {
 protected:
  CliGraphTest() {
    server_.AnswerExecuteGraph(std::ref(graph_));
    server_.AnswerDescribe(std::ref(describe_));
  }

  // The path of a graph's file.
  std::string Store(const std::string& text) const {
    const std::string path = folder_.Path("g.json");
    std::ofstream(path) << text;
    return path;
  }
  // Ends with status 2 and this message about the file.
  void ExpectWrongFile(const std::string& text, const std::string& message) {
    const std::string path = Store(text);
    const ProgramResult run = Warpcall(absl::StrCat("graph ", path, " --input x=", x_));
    EXPECT_EQ(run.exit_status, 2) << text;
    EXPECT_THAT(run.err, HasSubstr(path + message)) << text;
  }

  const std::string y_ = folder_.Path("y.npy");
  Script<v1::ExecuteGraphRequest, v1::ExecuteGraphResponse> graph_{testing::EchoGraph};
  Script<v1::DescribeRequest, v1::DescribeResponse> describe_{TwoSteps};
};

TEST_F(CliGraphTest, SendsTheFileAndWritesTheOutput) {
  const ProgramResult run =
      Warpcall(absl::StrCat("graph ", Store(kTwoSteps), " --input w1=@0a --input x=", x_,
                            " --output ", y_, " --device cpu --request_id mine --step-times"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(client::ReadNpy(y_)->ToFloats(), ElementsAre(1, 2, 3, 4));
  const v1::ExecuteGraphRequest request = graph_.Take().at(0);
  EXPECT_EQ(request.inputs(0).name(), "x");
  EXPECT_THAT(request.inputs(0).tensor().shape(), ElementsAre(2, 2));
  EXPECT_EQ(request.inputs(1).name(), "w1");
  EXPECT_EQ(request.inputs(1).tensor().handle(), "0a");
  const auto& attributes = request.steps(0).attributes();
  EXPECT_EQ(attributes.at("activation").string_value(), "gelu");
  EXPECT_EQ(attributes.at("axis").int_value(), -1);
  EXPECT_TRUE(attributes.at("exact").bool_value());
  EXPECT_EQ(attributes.at("scale").double_value(), 0.5);
  EXPECT_EQ(request.steps(1).implementation(), "cpu");
  EXPECT_THAT(request.steps(1).inputs(), ElementsAre("h"));
  EXPECT_FALSE(request.outputs(0).keep());
  EXPECT_TRUE(request.outputs(1).keep());
  EXPECT_EQ(request.outputs(1).ttl_ns(), 90'000'000'000);
  EXPECT_EQ(request.outputs(1).label(), "hidden");
  EXPECT_EQ(request.device(), "cpu");
  EXPECT_TRUE(request.step_times());

  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 9u) << run.out;
  EXPECT_EQ(lines[0], "2 steps on cpu, request mine");
  EXPECT_THAT(lines[1], MatchesRegex("STEP +KERNEL +IMPLEMENTATION +TIME"));
  EXPECT_THAT(lines[2], MatchesRegex("h +linear +chosen:fast +1.50 us"));
  EXPECT_THAT(lines[3], MatchesRegex("y +gelu +cpu:fast +1.50 us"));
  EXPECT_THAT(lines[5], MatchesRegex(absl::StrCat("y +", y_, " +float32 +2x2 +16 B")));
  EXPECT_THAT(lines[6], MatchesRegex("h +@kept-h +float32 +2x2 +16 B"));
  EXPECT_THAT(lines[7], MatchesRegex("QUEUE .* KERNELS .* INTERMEDIATE +RESIDENT +REPLAYED"));
  EXPECT_THAT(lines[8], MatchesRegex(" +1 ns .* 4.00 us .* 4.00 KiB +24 B +yes"));
}

TEST_F(CliGraphTest, JsonHasEverything) {
  const json result = WarpcallJson(absl::StrCat("graph ", Store(kTwoSteps), " --input w1=", x_,
                                                " --input x=", x_, " --output y=", y_));
  EXPECT_EQ(result["device"], "cpu");
  EXPECT_EQ(result["request_id"], "made");
  EXPECT_EQ(result["steps"][0]["name"], "h");
  EXPECT_EQ(result["steps"][0]["kernel"], "linear");
  EXPECT_EQ(result["steps"][0]["implementation"], "chosen");
  EXPECT_EQ(result["steps"][0]["kernel_ns"], 0);
  EXPECT_EQ(result["steps"][1]["launch"]["flops"], 400);
  EXPECT_EQ(result["outputs"][0], (json{{"name", "y"},
                                        {"data_type", "float32"},
                                        {"bytes", 16},
                                        {"shape", {2, 2}},
                                        {"file", y_}}));
  EXPECT_EQ(result["outputs"][1]["handle"], "kept-h");
  EXPECT_EQ(result["timing"]["kernel_ns"], 4000);
  EXPECT_EQ(result["resident_bytes"], 24);
  EXPECT_EQ(result["intermediate_bytes"], 4096);
  EXPECT_EQ(result["replayed"], true);
  EXPECT_GT(result["wall_ns"], 0);
  EXPECT_EQ(result["attempts"], 1);
}

TEST_F(CliGraphTest, WithoutStepTimesTheTableHasNone) {
  const ProgramResult run =
      Warpcall(absl::StrCat("graph ", Store(kTwoSteps), " --input w1=@0a --input x=", x_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(Lines(run.out)[1], MatchesRegex("STEP +KERNEL +IMPLEMENTATION"));
  EXPECT_THAT(Lines(run.out)[2], MatchesRegex("h +linear +chosen:fast"));
  EXPECT_THAT(run.out, HasSubstr("(not written)"));
  EXPECT_FALSE(graph_.Take().at(0).step_times());
}

TEST_F(CliGraphTest, AWrongFileIsNamedWithItsPlace) {
  ExpectWrongFile("{\n  \"steps\": [,]}", ": invalid JSON at line 2, column 13");
  ExpectWrongFile("{", ": invalid JSON at line 1, column 2");
  ExpectWrongFile("[]", ": it is a JSON array, not an object");
  ExpectWrongFile(R"({"steps": []})", ": \"outputs\" is missing");
  ExpectWrongFile(R"({"steps": {}, "outputs": []})", ": \"steps\" is a JSON object, not an array");
  ExpectWrongFile(R"({"step": []})", ": unknown key \"step\"; did you mean steps?");
  const auto step = [&](const std::string& text, const std::string& message) {
    ExpectWrongFile(
        absl::StrCat(R"({"outputs": [], "steps": [{"name": "a", "kernel": "k", "inputs": []}, )",
                     text, "]}"),
        ": steps[1]: " + message);
  };
  step(R"({"kernel": "k", "inputs": []})", "\"name\" is missing");
  step(R"({"name": "b", "kernel": 1, "inputs": []})", "\"kernel\" is a JSON number, not a string");
  step(R"({"name": "b", "kernel": "k", "input": []})",
       "unknown key \"input\"; did you mean inputs?");
  step(R"({"name": "b", "kernel": "k", "inputs": [2]})", "an input is a JSON number");
  step(R"({"name": "b", "kernel": "k", "inputs": [], "attributes": {"a": null}})",
       "attribute \"a\" is a JSON null; it must be a boolean, number or string");
  step(R"({"name": "b", "kernel": "k", "inputs": [], "attributes": {"a": 9223372036854775808}})",
       "attribute \"a\" is 9223372036854775808; it must fit into 64 bits");
  const auto output = [&](const std::string& text, const std::string& message) {
    ExpectWrongFile(absl::StrCat(R"({"steps": [], "outputs": [)", text, "]}"),
                    ": outputs[0]: " + message);
  };
  output("1", "it is a JSON number, not an object");
  output(R"({"name": "y", "keep": "yes"})", "\"keep\" is a JSON string, not a boolean");
  output(R"({"name": "y", "keep": true, "ttl": "long"})",
         "\"ttl\" is \"long\"; it must be a duration");
  output(R"({"name": "y", "label": "l"})", "\"ttl\" and \"label\" are for an output with");
  EXPECT_TRUE(graph_.Take().empty());
}

TEST_F(CliGraphTest, InputsAndOutputsAreGivenByName) {
  const std::string graph = absl::StrCat("graph ", Store(kTwoSteps), " ");
  const std::string x = absl::StrCat(" --input x=", x_);
  ExpectUsageErrors({
      {graph + x, "input \"w1\" has no file: give it by --input w1=FILE or --input w1=@HANDLE"},
      {graph + x + x, "--input x is given twice"},
      {graph + "--input " + x_, "it must be NAME="},
      {graph + "--input w=@0a", "the graph has no input \"w\"; it has x, w1"},
      {graph + "--input x=", "--input x= names no file"},
      {graph + x + " --input w1=@0a --output h=h.npy", "the graph has no output \"h\"; it has y"},
      {graph + x + " --input w1=" + x_ + " --output y=- --json", "both want stdout"},
      {graph + x + " --input w1=@0a --output y=/nowhere/y.npy", "/nowhere"},
      {graph + x + " --input w1=@", "@ stands before a handle"},
      {"graph " + folder_.Path("no.json"), "can't read"},
  });
  EXPECT_TRUE(graph_.Take().empty());
}

TEST_F(CliGraphTest, DescribeRunsNothing) {
  const std::string line = absl::StrCat(
      "graph ", Store(kTwoSteps), " --input w1=@0a --input x=", x_, " --describe --device cpu");
  const ProgramResult run = Warpcall(line);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out,
            "2 steps on cpu, not run\n"
            "\n"
            "STEP  KERNEL  IMPLEMENTATION    RESULT  INTERMEDIATE  FUSED SAVES  WITH\n"
            "h     linear  chosen:fast     4.00 KiB  yes              8.00 KiB  y\n"
            "y     gelu    cpu                 16 B  no                      -  -\n"
            "\n"
            "intermediates take 4.06 KiB of device memory\n");
  const v1::ExecuteGraphRequest request = describe_.Take().at(0).graph();
  EXPECT_THAT(request.inputs(0).tensor().shape(), ElementsAre(2, 2));
  EXPECT_EQ(request.inputs(0).tensor().data(), "");
  EXPECT_EQ(request.inputs(1).tensor().handle(), "0a");
  EXPECT_EQ(request.steps(0).attributes().at("activation").string_value(), "gelu");
  EXPECT_EQ(request.device(), "cpu");

  const json result = WarpcallJson(line);
  EXPECT_EQ(result["device"], "cpu");
  EXPECT_EQ(result["launch"]["bytes_moved"], 300);
  EXPECT_EQ(result["workspace_bytes"], 9);
  EXPECT_EQ(result["intermediate_bytes"], 4160);
  ASSERT_EQ(result["steps"].size(), 2u);
  json step = result["steps"][0];
  EXPECT_EQ(step["launch"]["flops"], 7);
  step.erase("launch");
  EXPECT_EQ(step, (json{{"name", "h"},
                        {"kernel", "linear"},
                        {"implementation", "chosen"},
                        {"result_bytes", 4096},
                        {"is_intermediate", true},
                        {"fuses_with", "y"},
                        {"fused_saves_bytes", 8192}}));
  ExpectUsageErrors({{line + " --output y=y.npy", "--output excludes --describe"},
                     {line + " --step-times", "--step-times excludes --describe"}});
  describe_.Refuse(absl::InvalidArgumentError("step \"h\": linear takes 3 inputs, not 2"));
  ExpectRefused(line, "INVALID_ARGUMENT: step \"h\": linear takes 3 inputs, not 2\n");
  EXPECT_TRUE(graph_.Take().empty());
}

TEST_F(CliGraphTest, TheServersRefusalIsPrinted) {
  graph_.Refuse(absl::InvalidArgumentError("step \"h\": linear takes 3 inputs, not 2"));
  ExpectRefused(absl::StrCat("graph ", Store(kTwoSteps), " --input w1=@0a --input x=", x_),
                "INVALID_ARGUMENT: step \"h\": linear takes 3 inputs, not 2\n");
}

TEST_F(CliGraphTest, OneInputNeedsNoNameAndStdoutGetsTheArray) {
  const std::string graph =
      Store(R"({"steps": [{"name": "y", "kernel": "gelu", "inputs": ["x"]}], "outputs": ["y"]})");
  const ProgramResult run =
      Warpcall(absl::StrCat("graph ", graph, " --input - --output - <", x_, " >", y_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(ReadFile(y_), ReadFile(x_));
}

}  // namespace
}  // namespace warpcall::cli
