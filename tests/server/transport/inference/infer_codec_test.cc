#include "server/transport/inference/infer_codec.h"

#include <gmock/gmock.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace warpcall::oip {
namespace {

using inference::ModelInferRequest;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Cuts `bytes` into pieces, as a network does.
grpc::ByteBuffer ToBuffer(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += piece) slices.emplace_back(bytes.substr(i, piece));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string JoinPieces(const InputPieces& pieces) {
  std::string joined;
  for (const absl::Span<const char>& piece : pieces) joined.append(piece.data(), piece.size());
  return joined;
}

Registry CpuKernels() {
  Registry registry;
  AddCpuKernels(&registry);
  return registry;
}

class InferCodecTest : public ::testing::Test {
 protected:
  InferCodecTest() {
    residents_.AddDevice({"cpu", DeviceKind::kCpu, 1000});
    request_.set_model_name("matmul_fp16");
    request_.set_id("an id");
    for (const char* const name : {"b", "a"}) {
      ModelInferRequest::InferInputTensor* const input = request_.add_inputs();
      input->set_name(name);
      input->set_datatype("FP16");
      input->add_shape(2);
      input->add_shape(2);
      request_.add_raw_input_contents(std::string(8, name[0]));
    }
  }

  // Decodes the request and returns its inputs, or the first refusal.
  absl::StatusOr<std::vector<std::string>> Inputs(size_t piece = 1000) {
    InferCodec codec(&door_, false);
    const grpc::ByteBuffer message = ToBuffer(request_.SerializeAsString(), piece);
    if (absl::Status status = codec.Decode(message); !status.ok()) return status;
    if (absl::Status status = codec.FindResidents(&residents_, "alice"); !status.ok())
      return status;
    absl::StatusOr<CallSpec> spec = codec.Spec();
    if (!spec.ok()) return spec.status();
    resident_bytes_.clear();
    for (const ResidentUse& use : spec->residents)
      resident_bytes_.push_back(use.content() == nullptr ? 0 : use.content()->bytes());
    const Op& op = *(*registry_.Find(spec->kernel))->op;
    const absl::StatusOr<Problem> problem = codec.ToProblem(op);
    if (!problem.ok()) return problem.status();
    problem_ = *problem;
    const absl::StatusOr<JobInputs> inputs = codec.Inputs(op, problem_);
    if (!inputs.ok()) return inputs.status();
    std::vector<std::string> data;
    for (const InputPieces& pieces : *inputs) data.push_back(JoinPieces(pieces));
    codec.ReleaseInputs();
    residents_.Lose(0, ++losses_);  // takes all names
    held_bytes_ = residents_.usage(0).bytes;
    EXPECT_EQ(codec.id(), request_.id());
    EXPECT_EQ(spec->request_id, request_.id());
    spec->residents.clear();
    spec_ = *std::move(spec);
    return data;
  }

  void ExpectRefused(const std::string& text) {
    const absl::Status status = Inputs().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  // Takes the data, type and shape of an input and puts the handle of a float16[2,2] in their
  // place.
  void NameByHandle(int input, const std::string& owner = "alice") {
    const auto content = residents_.Reserve({owner}, {DataType::kFloat16, {2, 2}}, 0);
    ModelInferRequest::InferInputTensor& tensor = *request_.mutable_inputs(input);
    (*tensor.mutable_parameters())["handle"].set_string_param(
        residents_.Name(*content, {})->handle);
    tensor.clear_datatype();
    tensor.clear_shape();
    auto* const raw = request_.mutable_raw_input_contents();
    if (input < raw->size()) raw->erase(raw->begin() + input);
  }
  static Residents::Options NoTimer() {
    Residents::Options options;
    options.timer = false;
    return options;
  }

  Residents residents_{NoTimer()};
  std::vector<size_t> resident_bytes_;  // of the spec's inputs
  int64_t losses_ = 0;
  int64_t held_bytes_ = 0;  // once no tensor had a name
  const Registry registry_ = CpuKernels();
  Door door_{registry_, [] { return int64_t{0}; },
             [](const SharedRegions::Caller&) { return false; }};
  ModelInferRequest request_;
  CallSpec spec_;
  Problem problem_;
};

TEST_F(InferCodecTest, BringsInputsIntoTheOpsOrderHoweverTheyCome) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}}) {
    const auto inputs = Inputs(piece);
    ASSERT_TRUE(inputs.ok()) << inputs.status();
    EXPECT_EQ(*inputs, (std::vector<std::string>{"aaaaaaaa", "bbbbbbbb"}));
  }
  EXPECT_EQ(spec_.kernel, "matmul");
  EXPECT_EQ(problem_.inputs[0].data_type, DataType::kFloat16);
}

TEST_F(InferCodecTest, TakesFloatsAsContents) {
  request_.set_model_name("matmul");
  request_.clear_raw_input_contents();
  for (ModelInferRequest::InferInputTensor& input : *request_.mutable_inputs()) {
    input.set_datatype("FP32");
    for (int i = 0; i < 4; ++i) input.mutable_contents()->add_fp32_contents(1);
  }
  ASSERT_TRUE(Inputs().ok());
  EXPECT_EQ(Inputs()->at(0).size(), 16u);
  request_.mutable_inputs(1)->clear_contents();
  ExpectRefused("'a' has no data");
  request_.add_raw_input_contents(std::string(16, 'a'));
  ExpectRefused("must not be specified");
}

TEST_F(InferCodecTest, RefusesWhatDoesNotFit) {
  const ModelInferRequest good = request_;
  request_.mutable_raw_input_contents(0)->resize(7);
  ExpectRefused("'b' has 7 bytes of data, but float16[2,2] takes 8");
  request_ = good;
  request_.add_raw_input_contents("");
  ExpectRefused("has 3 entries, but 2 inputs");
  request_ = good;
  request_.mutable_inputs(0)->set_name("a");
  ExpectRefused("given twice");
  request_ = good;
  request_.mutable_inputs()->RemoveLast();
  ExpectRefused("'a' of model 'matmul_fp16' is missing");
  request_ = good;
  request_.mutable_inputs(0)->set_datatype("FP32");
  ExpectRefused("takes FP16");
  request_ = good;
  request_.add_outputs()->set_name("y");
  ExpectRefused("outputs: c");
  request_ = good;
  request_.mutable_inputs(0)->set_shape(0, -1);
  ExpectRefused("dimension 0 is -1");
  request_ = good;
  (*request_.mutable_parameters())["transpose_c"].set_bool_param(true);
  ExpectRefused("\"transpose_c\" is unknown");
  request_ = good;
  (*(*request_.mutable_inputs())[0].mutable_parameters())["shared_memory_region"].set_string_param(
      "r");
  ExpectRefused("without shared_memory_byte_size");
}

TEST_F(InferCodecTest, AnInputByHandleTakesNoRawContentsAndIsHeldAfterItsName) {
  const ModelInferRequest good = request_;
  NameByHandle(0);
  auto inputs = Inputs();
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(*inputs, (std::vector<std::string>{"aaaaaaaa", ""}));
  EXPECT_EQ(resident_bytes_, (std::vector<size_t>{0, 8}));
  EXPECT_EQ(problem_.inputs[1], (TensorSpec{DataType::kFloat16, {2, 2}}));
  EXPECT_EQ(held_bytes_, 8);
  EXPECT_EQ(residents_.usage(0).bytes, 0);
  request_ = good;
  NameByHandle(1);
  inputs = Inputs();
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(*inputs, (std::vector<std::string>{"", "bbbbbbbb"}));
  EXPECT_EQ(resident_bytes_, (std::vector<size_t>{8}));
}

TEST_F(InferCodecTest, RefusesWhatDoesNotFitAHandle) {
  NameByHandle(0);
  const ModelInferRequest good = request_;
  ModelInferRequest::InferInputTensor& input = *request_.mutable_inputs(0);
  request_.add_raw_input_contents("bbbbbbbb");
  ExpectRefused("has 2 entries, but 1 inputs");
  request_ = good;
  input.mutable_contents();
  ExpectRefused("input 'b' has both a handle and contents");
  request_ = good;
  (*input.mutable_parameters())["shared_memory_region"].set_string_param("r");
  (*input.mutable_parameters())["shared_memory_byte_size"].set_int64_param(8);
  ExpectRefused("input 'b' has both a handle and a shared memory region");
  request_ = good;
  input.set_datatype("FP16");
  ExpectRefused("input 'b' is float16[], but the tensor of its handle is float16[2,2]");
  input.set_datatype("FP17");
  ExpectRefused("input 'b': ");
  request_ = good;
  (*input.mutable_parameters())["handle"].set_string_param("");
  ExpectRefused("parameter \"handle\" must be a string that is not empty");
  request_ = good;
  request_.set_model_name("matmul_fp32");
  ExpectRefused("has datatype FP16, but the model matmul_fp32 takes FP32");
  request_ = good;
  input.set_name("d");
  ExpectRefused("unexpected inference input 'd'");
  request_ = good;
  NameByHandle(1, "bob");
  const absl::Status foreign = Inputs().status();
  EXPECT_TRUE(absl::IsNotFound(foreign)) << foreign;
  EXPECT_THAT(LostHandles(foreign).value_or(""), EndsWith(" unknown"));
}

TEST_F(InferCodecTest, CountsAFailureAsTheModels) {
  InferCodec codec(&door_, false);
  codec.RecordEnd(RequestTrace(), absl::InternalError(""));  // no model is known yet
  const grpc::ByteBuffer message = ToBuffer(request_.SerializeAsString(), 1000);
  ASSERT_TRUE(codec.Decode(message).ok());
  ASSERT_TRUE(codec.Spec().ok());
  codec.RecordEnd(RequestTrace(), absl::InternalError(""));
  for (size_t i = 0; i < door_.models.all().size(); ++i)
    EXPECT_EQ(door_.statistics.IsUsed(i), door_.models.all()[i].name == "matmul_fp16");
}

}  // namespace
}  // namespace warpcall::oip
