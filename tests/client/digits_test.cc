// The digits example against a server that computes in plain loops, and against one that computes
// rubbish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"
#include "tests/programs.h"

namespace warpcall {
namespace {

using testing::FakeAnswer;
using testing::FakeServer;
using ::testing::HasSubstr;

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;
};

Matrix Read(const v1::Tensor& tensor) {
  Matrix matrix{tensor.shape(0), tensor.shape(1), std::vector<float>(tensor.data().size() / 4)};
  std::memcpy(matrix.values.data(), tensor.data().data(), tensor.data().size());
  return matrix;
}

Matrix Multiply(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, std::vector<float>(static_cast<size_t>(a.rows * b.columns), 0)};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j)
        c.values[i * b.columns + j] += a.values[i * a.columns + k] * b.values[k * b.columns + j];
  return c;
}

void Gelu(Matrix* x) {
  for (float& v : x->values)
    v = 0.5f * v * (1 + std::tanh(0.79788456f * (v + 0.044715f * v * v * v)));
}

void Softmax(Matrix* x) {
  for (int64_t i = 0; i < x->rows; ++i) {
    float* const row = x->values.data() + i * x->columns;
    const float max = *std::max_element(row, row + x->columns);
    float sum = 0;
    for (int64_t j = 0; j < x->columns; ++j) sum += row[j] = std::exp(row[j] - max);
    for (int64_t j = 0; j < x->columns; ++j) row[j] /= sum;
  }
}

FakeAnswer Compute(const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
  Matrix x = Read(request.inputs(0));
  if (request.kernel() == "matmul") x = Multiply(x, Read(request.inputs(1)));
  if (request.kernel() == "gelu") Gelu(&x);
  if (request.kernel() == "softmax") Softmax(&x);
  response->set_implementation("plain_loops");
  response->set_device("cpu");
  v1::Tensor* output = response->add_outputs();
  output->set_data_type(v1::DATA_TYPE_FLOAT32);
  output->add_shape(x.rows);
  output->add_shape(x.columns);
  output->set_data(x.values.data(), x.values.size() * sizeof(float));
  return {};
}

testing::ProgramResult Digits(const FakeServer& server) {
  return testing::RunProgram(absl::StrCat("'", testing::ProgramPath("digits"), "' --server ",
                                          server.address(), " --data '", DIGITS_DATA, "'"));
}

TEST(DigitsTest, ReadsDigitsAsWellAsNumPy) {
  FakeServer server(Compute);
  const auto run = Digits(server);
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("437 of 450"));  // what train.py printed
  EXPECT_THAT(run.out, HasSubstr("same digit as NumPy: 450 of 450"));
  EXPECT_THAT(run.out, HasSubstr("plain_loops"));
  EXPECT_EQ(server.executes(), 4);
}

TEST(DigitsTest, FailsWhenTheServerComputesSomethingElse) {
  FakeServer server([](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    const FakeAnswer answer = Compute(request, response);
    if (request.kernel() == "matmul") {
      std::string* data = response->mutable_outputs(0)->mutable_data();
      std::fill(data->begin(), data->end(), '\0');
    }
    return answer;
  });
  const auto run = Digits(server);
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("is under 95 %"));
}

TEST(DigitsTest, FailsWhenTheServerRefuses) {
  FakeServer server([](const v1::ExecuteRequest&, v1::ExecuteResponse*) -> FakeAnswer {
    return {absl::InternalError("a defect"), std::nullopt};
  });
  const auto run = Digits(server);
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("layer 1: a defect"));
}

}  // namespace
}  // namespace warpcall
