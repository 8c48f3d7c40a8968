// Whatever a client sends, it gets the right code and a message that names value and limit, it is
// counted once, and the server serves on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <variant>

#include "tests/e2e/counted_server.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using grpc::StatusCode;

class BadInputTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new CountedServer({"--max_message_mib=1", "--staging_mib=8"});
  }
  static void TearDownTestSuite() {
    server_->ExpectNothingMore();
    delete server_;
  }

  // The server gives the same right answer after the test as before.
  void TearDown() override {
    const Reply reply =
        server_->Send(Request("gelu", {FloatTensor({2}, {0, 100})}), {StatusCode::OK, "gelu"});
    ASSERT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
    EXPECT_EQ(Floats(reply.response.outputs(0)), (std::vector<float>{0, 100}));
  }

  // `kernel`: the kernel that the server found.
  std::string NotFound(const v1::ExecuteRequest& request, const std::string& kernel = "") {
    return server_->Send(request, {StatusCode::NOT_FOUND, kernel}).status.error_message();
  }

  static CountedServer* server_;
};

CountedServer* BadInputTest::server_;

v1::ExecuteRequest Shaped(const std::vector<int64_t>& shape) {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  request.mutable_inputs(0)->mutable_shape()->Assign(shape.begin(), shape.end());
  return request;
}

v1::ExecuteRequest Typed(v1::ExecuteRequest request, int type) {
  request.mutable_inputs(0)->set_data_type(static_cast<v1::DataType>(type));
  return request;
}

// `value`: a string, an int64_t, or nothing.
v1::ExecuteRequest With(const std::string& kernel, const std::string& name,
                        const std::variant<std::monostate, std::string, int64_t>& value) {
  v1::ExecuteRequest request = Request(kernel, {FloatTensor(4)});
  v1::Attribute& attribute = (*request.mutable_attributes())[name];
  if (const auto* text = std::get_if<std::string>(&value)) attribute.set_string_value(*text);
  if (const auto* number = std::get_if<int64_t>(&value)) attribute.set_int_value(*number);
  return request;
}

TEST_F(BadInputTest, WhatIsWrongIsNamedWithItsLimit) {
  const int64_t big = int64_t{1} << 40;
  const v1::Tensor square = FloatTensor({2, 2}, {1, 2, 3, 4});
  v1::Tensor half = FloatTensor({2, 2}, {1, 2});  // for the same bytes
  half.set_data_type(v1::DATA_TYPE_FLOAT16);
  const v1::Tensor row = FloatTensor({1, 4}, {1, 2, 3, 4});
  const struct {
    v1::ExecuteRequest request;
    std::vector<std::string> named;
  } kRefusals[] = {
      {Shaped({5}), {"16", "20"}},
      {Shaped({3}), {"16", "12"}},
      {Shaped({0}), {"16", "0"}},
      {Shaped({-4}), {"-4", "0"}},
      {Shaped({}), {"rank", "0", "1"}},
      {Shaped({1, 1, 1, 1, 1, 1, 1, 1, 4}), {"9", "8"}},
      {Shaped({big, big}), {"1099511627776"}},
      {Shaped({0, big, big}), {"1099511627776"}},
      {Shaped({INT64_MAX}), {"9223372036854775807"}},
      {Typed(Shaped({4}), 0), {"0", "float32"}},
      {Typed(Shaped({4}), 4), {"4", "float32"}},
      {Typed(Shaped({4}), -1), {"-1", "float32"}},
      {Typed(Shaped({4}), 1000), {"1000", "float32"}},
      {Request("matmul", {square, half}), {"float16", "float32"}},
      {With("gelu", "aproximate", "tanh"), {"aproximate", "approximate"}},
      {With("gelu", "approximate", "cubic"), {"cubic", "tanh", "none"}},
      {With("gelu", "approximate", int64_t{1}), {"approximate", "string"}},
      {With("gelu", "approximate", {}), {"approximate", "no value"}},
      {With("softmax", "axis", int64_t{1}), {"1"}},
      {With("softmax", "axis", int64_t{-2}), {"-2"}},
      {With("softmax", "axis", INT64_MAX), {"9223372036854775807"}},
      {With("softmax", "axis", INT64_MIN), {"-9223372036854775808"}},
      {With("identity", "axis", int64_t{0}), {"axis"}},
      {Request("gelu", {}), {"1", "0"}},
      {Request("gelu", {FloatTensor(1), FloatTensor(1)}), {"1", "2"}},
      {Request("matmul", {row}), {"2", "1"}},
      {Request("matmul", {row, FloatTensor({3, 1}, {1, 2, 3})}), {"4", "3"}},
      {Request("matmul", {FloatTensor(4), FloatTensor(4)}), {"2"}},
  };
  for (const auto& [request, named] : kRefusals) {
    const std::string message =
        server_->Send(request, {StatusCode::INVALID_ARGUMENT, request.kernel()})
            .status.error_message();
    for (const std::string& text : named) EXPECT_THAT(message, HasSubstr(text));
  }
}

TEST_F(BadInputTest, UnknownNames) {
  v1::ExecuteRequest request = Request("gleu", {FloatTensor(4)});
  EXPECT_THAT(NotFound(request), AllOf(HasSubstr("gleu"), HasSubstr("gelu"), HasSubstr("softmax"),
                                       HasSubstr("matmul"), HasSubstr("identity")));
  request = Request("gelu", {FloatTensor(4)});
  request.set_implementation("fpga");
  EXPECT_THAT(NotFound(request, "gelu"),
              AllOf(HasSubstr("fpga"), HasSubstr("reference"), HasSubstr("cpu")));
  request.set_implementation("");
  request.set_device("cuda:7");
  EXPECT_THAT(NotFound(request, "gelu"), AllOf(HasSubstr("cuda:7"), HasSubstr("cpu")));
  EXPECT_THAT(NotFound(v1::ExecuteRequest()), HasSubstr("gelu"));
}

TEST_F(BadInputTest, OutputsOverTheLimit) {
  v1::ExecuteRequest request =
      Request("matmul", {FloatTensor({1 << 20, 0}, {}), FloatTensor({0, 1 << 20}, {})});
  request.set_implementation("reference");
  const Reply reply =
      server_->Send(request, {StatusCode::RESOURCE_EXHAUSTED, "matmul", "reference"});
  EXPECT_THAT(reply.status.error_message(),
              AllOf(HasSubstr("4398046511104"), HasSubstr("1048576")));
  EXPECT_EQ(reply.pushback_ms, "-1");
}

v1::Tensor HalfTensor(int64_t elements) {
  v1::Tensor tensor;
  tensor.set_data_type(v1::DATA_TYPE_FLOAT16);
  tensor.add_shape(elements);
  tensor.set_data(std::string(2 * static_cast<size_t>(elements), '\0'));
  return tensor;
}

TEST_F(BadInputTest, NoRowTakesIt) {
  v1::ExecuteRequest request = Request("gelu", {HalfTensor(2)});
  request.set_implementation("library");
  EXPECT_THAT(server_->Send(request, {StatusCode::UNIMPLEMENTED, "gelu"}).status.error_message(),
              HasSubstr("float16"));
}

TEST_F(BadInputTest, AMebibyteOfTensorsFitsAndAnElementMoreDoesNot) {
  v1::ExecuteRequest request = Request("gelu", {HalfTensor(1 << 19)});
  request.set_request_id(std::string(256, 'r'));
  const Reply reply = server_->Send(request, {StatusCode::OK, "gelu"});
  ASSERT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
  EXPECT_EQ(reply.response.outputs(0).data().size(), 1u << 20);

  request = Request("gelu", {HalfTensor((1 << 19) + 1)});
  request.set_implementation("reference");
  const Reply more = server_->Send(request, GeluEnds(StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_THAT(more.status.error_message(),
              HasSubstr("has 1048578 bytes; the limit is 1048576 (max_message_mib)"));
  EXPECT_EQ(more.pushback_ms, "-1");
  EXPECT_GE(server_->process().Sum("warpcall_rejected_total", {"reason=\"message_bytes\""}), 1);

  const v1::Tensor half = FloatTensor({512, 256}, std::vector<float>(512 * 256));
  const v1::Tensor rest = FloatTensor({256, 513}, std::vector<float>(256 * 513));
  request = Request("matmul", {half, rest});
  request.set_implementation("reference");
  EXPECT_THAT(server_->Send(request, {StatusCode::RESOURCE_EXHAUSTED, "matmul", "reference"})
                  .status.error_message(),
              HasSubstr("has 1049600 bytes; the limit is 1048576"));
}

TEST_F(BadInputTest, MessagesOverTheLimit) {
  const Reply reply =
      server_->Send(Request("gelu", {FloatTensor(1 << 19)}), {StatusCode::RESOURCE_EXHAUSTED});
  EXPECT_THAT(reply.status.error_message(),
              AllOf(HasSubstr("has 2097175 bytes"), HasSubstr("1048576 (max_message_mib)"),
                    HasSubstr("65536")));
  EXPECT_EQ(reply.pushback_ms, "-1");
  EXPECT_GE(server_->process().Sum("warpcall_rejected_total", {"reason=\"message_bytes\""}), 1);
}

// Status due to a damaged gelu request, as protobuf's own parser reads it: a message without a
// kernel's name gets NOT_FOUND; an unreadable one, or one without its tensor, INVALID_ARGUMENT.
Ended EndOf(const std::string& message) {
  v1::ExecuteRequest request;
  if (!request.ParseFromString(message)) return {StatusCode::INVALID_ARGUMENT};
  if (request.kernel() != "gelu") return {StatusCode::NOT_FOUND};
  return {StatusCode::INVALID_ARGUMENT, "gelu"};
}

TEST_F(BadInputTest, TruncatedMessages) {
  const std::string message = Request("gelu", {FloatTensor(4)}).SerializeAsString();
  for (size_t bytes = 0; bytes < message.size(); ++bytes) {
    const std::string part = message.substr(0, bytes);
    EXPECT_NE(server_->Send(part, EndOf(part)).status.error_message(), "") << bytes << " bytes";
  }
}

TEST_F(BadInputTest, FieldsInAnyOrderAndRepeated) {
  v1::ExecuteRequest names, tensors, more_names;
  names.set_kernel("no such kernel");
  names.set_request_id("first");
  *tensors.add_inputs() = FloatTensor({2}, {50, 60});
  more_names.set_kernel("identity");
  more_names.set_request_id("last");
  const Reply reply = server_->Send(
      names.SerializeAsString() + tensors.SerializeAsString() + more_names.SerializeAsString(),
      {StatusCode::OK, "identity"});
  ASSERT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
  EXPECT_EQ(reply.response.request_id(), "last");
  EXPECT_EQ(Floats(reply.response.outputs(0)), (std::vector<float>{50, 60}));

  // A tensor with data before shape, shape unpacked and in two parts, data given twice.
  const std::string data = FloatTensor({2}, {7, 8}).data();
  const std::string tensor =
      std::string("\x1a\x03xyz\x1a\x08", 7) + data + std::string("\x10\x02\x12\x01\x01\x08\x01", 7);
  const Reply odd = server_->Send(std::string("\x1a", 1) + static_cast<char>(tensor.size()) +
                                      tensor + more_names.SerializeAsString(),
                                  {StatusCode::OK, "identity"});
  ASSERT_TRUE(odd.status.ok()) << odd.CodeAndMessage();
  EXPECT_EQ(odd.response.outputs(0).shape_size(), 2);
  EXPECT_EQ(odd.response.outputs(0).data(), data);
}

TEST_F(BadInputTest, LongRequestIds) {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  request.set_request_id(std::string(257, 'r'));
  EXPECT_THAT(server_->Send(request, {StatusCode::INVALID_ARGUMENT}).status.error_message(),
              AllOf(HasSubstr("257"), HasSubstr("256")));
}

// By which the log has it.
TEST_F(BadInputTest, ARefusedRequestThatGaveNoIdGetsOne) {
  v1::ExecuteRequest request = Request("nothing", {FloatTensor(4)});
  const Reply first = server_->Send(request, {StatusCode::NOT_FOUND, ""});
  EXPECT_THAT(first.request_id, ::testing::StartsWith("warpcall-"));
  EXPECT_NE(server_->Send(request, {StatusCode::NOT_FOUND, ""}).request_id, first.request_id);
  request.set_request_id("mine");
  EXPECT_EQ(server_->Send(request, {StatusCode::NOT_FOUND, ""}).request_id, "");
}

TEST_F(BadInputTest, AnotherProtocol) {
  // Not gRPC at all: the server hangs up, and no request reaches the service (see TearDown).
  for (const std::string text : {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x16\x03\x01\x02\x00\x01"}) {
    const int fd = ConnectTcp(server_->address());
    ASSERT_GE(fd, 0);
    const timeval patience = {.tv_sec = 30, .tv_usec = 0};
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    // A preface of HTTP/2 has 24 bytes: with fewer the server has to wait for more.
    const std::string sent = text + std::string(24, 'x');
    EXPECT_EQ(write(fd, sent.data(), sent.size()), static_cast<ssize_t>(sent.size()));
    std::string answer;
    char buffer[256];
    ssize_t got;
    while ((got = read(fd, buffer, sizeof(buffer))) > 0)
      answer.append(buffer, static_cast<size_t>(got));
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << "the server keeps the connection";
    EXPECT_THAT(answer, ::testing::Not(HasSubstr("200")));
    close(fd);
  }
}

}  // namespace
}  // namespace warpcall::testing
