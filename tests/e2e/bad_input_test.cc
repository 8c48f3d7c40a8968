// Whatever a client sends, it gets the right code and a message that names value and limit, it is
// counted once, and the server serves on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <random>

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

  std::string Invalid(const v1::ExecuteRequest& request) {
    return server_->Send(request, {StatusCode::INVALID_ARGUMENT, request.kernel()})
        .status.error_message();
  }
  // `kernel`: what was found.
  std::string NotFound(const v1::ExecuteRequest& request, const std::string& kernel = "") {
    return server_->Send(request, {StatusCode::NOT_FOUND, kernel}).status.error_message();
  }

  static v1::ExecuteRequest WithShape(const std::vector<int64_t>& shape) {
    v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
    request.mutable_inputs(0)->mutable_shape()->Assign(shape.begin(), shape.end());
    return request;
  }

  static CountedServer* server_;
};

CountedServer* BadInputTest::server_;

TEST_F(BadInputTest, WrongByteLength) {
  EXPECT_THAT(Invalid(WithShape({5})), AllOf(HasSubstr("16"), HasSubstr("20")));
  EXPECT_THAT(Invalid(WithShape({3})), AllOf(HasSubstr("16"), HasSubstr("12")));
  EXPECT_THAT(Invalid(WithShape({0})), AllOf(HasSubstr("16"), HasSubstr("0")));
}

TEST_F(BadInputTest, Dimensions) {
  EXPECT_THAT(Invalid(WithShape({-4})), AllOf(HasSubstr("-4"), HasSubstr("0")));
  EXPECT_THAT(Invalid(WithShape({})), AllOf(HasSubstr("rank"), HasSubstr("0"), HasSubstr("1")));
  EXPECT_THAT(Invalid(WithShape({1, 1, 1, 1, 1, 1, 1, 1, 4})),
              AllOf(HasSubstr("9"), HasSubstr("8")));
  const int64_t big = int64_t{1} << 40;
  EXPECT_THAT(Invalid(WithShape({big, big})), HasSubstr("1099511627776"));
  EXPECT_THAT(Invalid(WithShape({0, big, big})), HasSubstr("1099511627776"));
  EXPECT_THAT(Invalid(WithShape({INT64_MAX})), HasSubstr("9223372036854775807"));
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

TEST_F(BadInputTest, DataTypes) {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  for (int type : {0, 4, -1, 1000}) {
    request.mutable_inputs(0)->set_data_type(static_cast<v1::DataType>(type));
    EXPECT_THAT(Invalid(request), AllOf(HasSubstr(std::to_string(type)), HasSubstr("float32")));
  }
  request =
      Request("matmul", {FloatTensor({2, 2}, {1, 2, 3, 4}), FloatTensor({2, 2}, {1, 2, 3, 4})});
  request.mutable_inputs(1)->set_data_type(v1::DATA_TYPE_BFLOAT16);
  Invalid(request);
}

TEST_F(BadInputTest, Attributes) {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  (*request.mutable_attributes())["aproximate"].set_string_value("tanh");
  EXPECT_THAT(Invalid(request), AllOf(HasSubstr("aproximate"), HasSubstr("approximate")));
  request.clear_attributes();
  (*request.mutable_attributes())["approximate"].set_string_value("cubic");
  EXPECT_THAT(Invalid(request), AllOf(HasSubstr("cubic"), HasSubstr("tanh"), HasSubstr("none")));
  (*request.mutable_attributes())["approximate"].set_int_value(1);
  EXPECT_THAT(Invalid(request), AllOf(HasSubstr("approximate"), HasSubstr("string")));
  (*request.mutable_attributes())["approximate"].clear_value();
  EXPECT_THAT(Invalid(request), AllOf(HasSubstr("approximate"), HasSubstr("no value")));
  request = Request("softmax", {FloatTensor(4)});
  for (int64_t axis : {int64_t{1}, int64_t{-2}, INT64_MAX, INT64_MIN}) {
    (*request.mutable_attributes())["axis"].set_int_value(axis);
    EXPECT_THAT(Invalid(request), HasSubstr(std::to_string(axis)));
  }
  request = Request("identity", {FloatTensor(4)});
  (*request.mutable_attributes())["axis"].set_int_value(0);
  EXPECT_THAT(Invalid(request), HasSubstr("axis"));
}

TEST_F(BadInputTest, NumberOfInputsAndShapesThatDoNotFit) {
  EXPECT_THAT(Invalid(Request("gelu", {})), AllOf(HasSubstr("1"), HasSubstr("0")));
  EXPECT_THAT(Invalid(Request("gelu", {FloatTensor(1), FloatTensor(1)})),
              AllOf(HasSubstr("1"), HasSubstr("2")));
  EXPECT_THAT(Invalid(Request("matmul", {FloatTensor({1, 4}, {1, 2, 3, 4})})),
              AllOf(HasSubstr("2"), HasSubstr("1")));
  EXPECT_THAT(Invalid(Request("matmul",
                              {FloatTensor({1, 4}, {1, 2, 3, 4}), FloatTensor({3, 1}, {1, 2, 3})})),
              AllOf(HasSubstr("4"), HasSubstr("3")));
  EXPECT_THAT(Invalid(Request("matmul", {FloatTensor(4), FloatTensor(4)})), HasSubstr("2"));
}

TEST_F(BadInputTest, OutputsOverTheLimit) {
  v1::ExecuteRequest request =
      Request("matmul", {FloatTensor({1 << 20, 0}, {}), FloatTensor({0, 1 << 20}, {})});
  request.set_implementation("reference");
  const Reply reply = server_->Send(request, {StatusCode::RESOURCE_EXHAUSTED, "matmul", "float64"});
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
  EXPECT_THAT(server_->Send(request, {StatusCode::RESOURCE_EXHAUSTED, "matmul", "float64"})
                  .status.error_message(),
              HasSubstr("has 1049600 bytes; the limit is 1048576"));
}

TEST_F(BadInputTest, ProfileTakesTheSameMessages) {
  const auto stub = v1::KernelService::NewStub(server_->channel());
  const auto profile = [&](int64_t elements) {
    v1::ProfileRequest request;
    *request.mutable_request() = Request("gelu", {HalfTensor(elements)});
    grpc::ClientContext context;
    v1::ProfileResponse response;
    return stub->Profile(&context, request, &response);
  };
  EXPECT_TRUE(profile(1 << 19).ok());
  const grpc::Status more = profile((1 << 19) + 1);
  EXPECT_EQ(more.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(more.error_message(),
              HasSubstr("has 1048578 bytes; the limit is 1048576 (max_message_mib)"));
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

// What a message that is not quite a request of gelu deserves, by protobuf's own parser: one that
// cannot be read, or that lacks its tensor, is wrong; one without a kernel's name asks for nothing.
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

TEST_F(BadInputTest, RandomBytes) {
  std::mt19937 random(std::random_device{}());
  std::vector<Ended> ended;
  for (int i = 0; i < 500; ++i) {
    std::string message(random() % 200, '\0');
    for (char& c : message) c = static_cast<char>(random());
    ended.push_back(EndOf(message));
    const Reply reply = CallRaw(server_->channel(), message);
    EXPECT_EQ(reply.status.error_code(), ended.back().code)
        << ::testing::PrintToString(message) << ": " << reply.CodeAndMessage();
  }
  server_->Expect(ended);
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
