// Execute over several connections, against a server with a kernel of each kind of independence.
// Their results depend on where a byte lies, so a part that is cut or put back wrongly shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/client/bytes.h"
#include "tests/client/fake_server.h"
#include "tests/client/patience.h"
#include "tests/e2e/eventually.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using ::testing::ElementsAre;
using testing::ExecuteHandler;
using testing::FakeAnswer;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::kMiB;
using testing::kPatience;

size_t ElementBytesOf(const v1::Tensor& tensor) {
  return ElementBytes(static_cast<DataType>(tensor.data_type()));
}

// Computes every element by itself: its bytes inverted, the last of them plus one.
void Invert(v1::Tensor* tensor) {
  std::string& data = *tensor->mutable_data();
  const size_t element = ElementBytesOf(*tensor);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<char>(~data[i] + (i % element == element - 1 ? 1 : 0));
}

// Computes every index before the axis by itself: reverses the elements along the axis.
void Reverse(size_t axis, v1::Tensor* tensor) {
  size_t outer = 1, inner = ElementBytesOf(*tensor);
  for (size_t i = 0; i < static_cast<size_t>(tensor->shape_size()); ++i) {
    const auto dimension = static_cast<size_t>(tensor->shape(static_cast<int>(i)));
    if (i < axis) outer *= dimension;
    if (i > axis) inner *= dimension;
  }
  const auto along = static_cast<size_t>(tensor->shape(static_cast<int>(axis)));
  const std::string from = tensor->data();
  std::string& to = *tensor->mutable_data();
  for (size_t o = 0; o < outer; ++o)
    for (size_t a = 0; a < along; ++a)
      to.replace((o * along + a) * inner, inner, from, (o * along + along - 1 - a) * inner, inner);
}

// Row by row: [m, n] of the first input's [m, k] and the n bytes of the second, which rows share.
void TakeTheirBytes(const v1::ExecuteRequest& request, v1::Tensor* output) {
  const v1::Tensor& x = request.inputs(0);
  const std::string& shared = request.inputs(1).data();
  const auto k = static_cast<size_t>(x.shape(x.shape_size() - 1)) * ElementBytesOf(x);
  const auto columns = static_cast<int64_t>(shared.size() / ElementBytesOf(x));
  output->set_shape(x.shape_size() - 1, columns);
  output->clear_data();
  for (size_t row = 0; row * k < x.data().size(); ++row)
    for (size_t i = 0; i < shared.size(); ++i)
      output->mutable_data()->push_back(static_cast<char>(x.data()[row * k + i % k] ^ shared[i]));
}

FakeAnswer RunKernel(const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
  EchoInputs(request, response);
  if (request.inputs().empty())
    testing::Merge("data_type: DATA_TYPE_FLOAT32 shape: 0", response->add_outputs());
  if (request.kernel() == "sharing") {
    while (response->outputs_size() > 1) response->mutable_outputs()->RemoveLast();
    TakeTheirBytes(request, response->mutable_outputs(0));
  }
  for (v1::Tensor& output : *response->mutable_outputs()) {
    if (request.kernel() == "elements") Invert(&output);
    if (request.kernel() != "rows") continue;
    const auto axis = request.attributes().find("axis");
    int64_t index = axis == request.attributes().end() ? -1 : axis->second.int_value();
    if (index < 0) index += output.shape_size();
    Reverse(static_cast<size_t>(index), &output);
  }
  return {};
}

absl::Status ListTestKernels(v1::ListKernelsResponse* response) {
  for (const auto& [name, independence] :
       {std::pair("elements", v1::INDEPENDENCE_ELEMENTS),
        std::pair("rows", v1::INDEPENDENCE_BEFORE_AXIS),
        std::pair("sharing", v1::INDEPENDENCE_ROWS), std::pair("whole", v1::INDEPENDENCE_NONE)}) {
    v1::KernelInfo* kernel = response->add_kernels();
    kernel->set_name(name);
    kernel->set_independence(independence);
    if (independence == v1::INDEPENDENCE_ROWS) {
      kernel->add_input_roles(v1::OPERAND_ROLE_SPLIT);
      kernel->add_input_roles(v1::OPERAND_ROLE_SHARED);
    }
    v1::AttributeInfo* axis = kernel->add_attributes();
    axis->set_name("axis");
    axis->mutable_default_value()->set_int_value(-1);
  }
  return absl::OkStatus();
}

ClientOptions Over(int connections) { return {.timeout = kPatience, .connections = connections}; }

Tensor RandomTensor(DataType type, std::vector<int64_t> shape) {
  static std::mt19937_64 random(20261121);
  const auto bytes = static_cast<size_t>(ByteCount(type, shape).value());
  auto data = std::make_shared<std::vector<uint64_t>>(bytes / sizeof(uint64_t) + 1);
  for (uint64_t& word : *data) word = random();
  const absl::Span<const char> view(reinterpret_cast<const char*>(data->data()), bytes);
  return Tensor(type, std::move(shape), view, std::move(data));
}

class StripingTest : public ::testing::Test {
 protected:
  explicit StripingTest(ExecuteHandler handler = RunKernel)
      : server_([this, handler = std::move(handler)](const v1::ExecuteRequest& request,
                                                     v1::ExecuteResponse* response) {
          {
            absl::MutexLock lock(&mutex_);
            requests_.push_back(request);
            for (v1::Tensor& input : *requests_.back().mutable_inputs()) input.clear_data();
            if (answer_ != nullptr) return answer_(request, response);
          }
          return handler(request, response);
        }) {
    server_.AnswerListKernels(ListTestKernels);
  }

  // Both ways; the striped one has `stripes` stripes.
  void ExpectSameInStripes(const Call& call, int connections, int stripes) {
    Client plain(server_.address(), Over(1));
    Client striping(server_.address(), Over(connections));
    const auto whole = plain.Execute(call);
    const auto striped = striping.Execute(call);
    ASSERT_TRUE(whole.ok()) << whole.status();
    ASSERT_TRUE(striped.ok()) << striped.status();
    EXPECT_EQ(whole->stripes, 1);
    EXPECT_EQ(striped->stripes, stripes);
    ASSERT_EQ(striped->outputs.size(), whole->outputs.size());
    for (size_t i = 0; i < whole->outputs.size(); ++i) {
      EXPECT_EQ(striped->outputs[i].data_type(), whole->outputs[i].data_type());
      EXPECT_EQ(striped->outputs[i].shape(), whole->outputs[i].shape());
      EXPECT_TRUE(striped->outputs[i].data() == whole->outputs[i].data()) << "output " << i;
    }
  }

  // Decides instead of the kernels, one request after the other.
  void Answer(ExecuteHandler answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }
  std::vector<v1::ExecuteRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }

  absl::Mutex mutex_;
  ExecuteHandler answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ExecuteRequest> requests_ ABSL_GUARDED_BY(mutex_);
  FakeServer server_;
};

TEST_F(StripingTest, ElementsGiveTheSameInStripes) {
  constexpr auto kF16 = DataType::kFloat16;
  constexpr auto kF32 = DataType::kFloat32;
  ExpectSameInStripes({.kernel = "elements", .inputs = {RandomTensor(kF32, {1'000'003})}}, 2, 2);
  ExpectSameInStripes({.kernel = "elements", .inputs = {RandomTensor(kF32, {7, 149'999})}}, 3, 3);
  ExpectSameInStripes({.kernel = "elements", .inputs = {RandomTensor(kF16, {3, 1, 700'001})}}, 5,
                      4);
  ExpectSameInStripes(
      {.kernel = "elements",
       .inputs = {RandomTensor(kF32, {777, 1001}), RandomTensor(kF16, {777, 1001})}},
      4, 4);
}

TEST_F(StripingTest, RowsGiveTheSameInStripes) {
  constexpr auto kF32 = DataType::kFloat32;
  const Tensor x = RandomTensor(kF32, {5, 61, 37, 83});
  for (const auto& [axis, stripes] :
       {std::pair(-1, 3), std::pair(2, 3), std::pair(1, 3), std::pair(-4, 1)})
    ExpectSameInStripes({.kernel = "rows", .inputs = {x}, .attributes = {{"axis", int64_t{axis}}}},
                        3, stripes);
  ExpectSameInStripes({.kernel = "rows", .inputs = {x}}, 2, 2);
  // Fewer rows than connections.
  ExpectSameInStripes({.kernel = "rows", .inputs = {RandomTensor(kF32, {3, 400'001})}}, 4, 3);
  ExpectSameInStripes({.kernel = "rows", .inputs = {RandomTensor(kF32, {1, 1'000'000})}}, 4, 1);
}

TEST_F(StripingTest, RowsThatShareAnInputGiveTheSameInStripes) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16})
    for (const int64_t columns : {1, 77, 2048})
      ExpectSameInStripes(
          {.kernel = "sharing",
           .inputs = {RandomTensor(type, {3, 701, 1024}), RandomTensor(type, {columns})}},
          4, 4);
  for (const v1::ExecuteRequest& request : requests()) {
    EXPECT_EQ(request.inputs_size(), 2);
    EXPECT_EQ(request.inputs(1).shape_size(), 1);
  }
  // Only of the whole is there one answer when stripes disagree.
  const auto columns = std::make_shared<std::atomic<int>>(0);
  Answer([columns](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    v1::ExecuteRequest other = request;
    other.mutable_inputs(1)->mutable_data()->append(static_cast<size_t>(4 * (*columns)++), 'x');
    return RunKernel(other, response);
  });
  Client client(server_.address(), Over(2));
  const auto result = client.Execute({.kernel = "sharing",
                                      .inputs = {RandomTensor(DataType::kFloat32, {1024, 1024}),
                                                 RandomTensor(DataType::kFloat32, {5})}});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal) << result.status();
}

TEST_F(StripingTest, ProblemsInOnePieceStayWhole) {
  const Tensor x = RandomTensor(DataType::kFloat32, {2048, 1024});
  ExpectSameInStripes({.kernel = "whole", .inputs = {x}}, 4, 1);
  ExpectSameInStripes({.kernel = "unheard of", .inputs = {x}}, 4, 1);
  const Tensor empty = RandomTensor(DataType::kFloat32, {0, 1024});
  ExpectSameInStripes({.kernel = "elements", .inputs = {empty}}, 4, 1);
  ExpectSameInStripes({.kernel = "elements", .inputs = {}}, 4, 1);
  ExpectSameInStripes({.kernel = "elements", .inputs = {x, empty}}, 4, 1);
}

TEST_F(StripingTest, SmallCallsAreSentWholeAndNobodyAsksForKernels) {
  Client client(server_.address(), Over(4));
  const Call call{.kernel = "elements",
                  .inputs = {RandomTensor(DataType::kFloat32, {kMiB / 2 - 1})}};
  for (int i = 0; i < 8; ++i) {
    const auto result = client.Execute(call);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->stripes, 1);
  }
  EXPECT_EQ(server_.executes(), 8);
  EXPECT_EQ(server_.list_kernels(), 0);
  EXPECT_EQ(server_.peers().size(), 4u);  // in turn over all connections
}

TEST_F(StripingTest, KernelsAreAskedForOnceAndStripesTakeAConnectionEach) {
  Client client(server_.address(), Over(4));
  const Call call{.kernel = "elements", .inputs = {RandomTensor(DataType::kFloat32, {2 * kMiB})}};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.Execute(call).ok());
  EXPECT_EQ(server_.list_kernels(), 1);
  EXPECT_EQ(server_.executes(), 12);
  EXPECT_EQ(server_.peers().size(), 4u);
}

TEST_F(StripingTest, OneConnectionNeitherStripesNorAsks) {
  Client client(server_.address(), Over(1));
  const auto result = client.Execute(
      {.kernel = "elements", .inputs = {RandomTensor(DataType::kFloat32, {2 * kMiB})}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server_.executes(), 1);
  EXPECT_EQ(server_.list_kernels(), 0);
}

TEST_F(StripingTest, WithoutTheListOfKernelsCallsAreSentWhole) {
  const Call call{.kernel = "elements", .inputs = {RandomTensor(DataType::kFloat32, {kMiB})}};
  for (const auto& [status, asked] :
       {std::pair(absl::UnavailableError("busy"), 3), std::pair(absl::UnimplementedError("old"), 1),
        std::pair(absl::PermissionDeniedError("not you"), 1)}) {
    FakeServer server(RunKernel);
    server.AnswerListKernels([refusal = status](v1::ListKernelsResponse*) { return refusal; });
    Client client(server.address(), Over(3));
    for (int i = 0; i < 3; ++i) {
      const auto result = client.Execute(call);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->stripes, 1);
    }
    EXPECT_EQ(server.executes(), 3);
    EXPECT_EQ(server.list_kernels(), asked) << status;
  }
}

TEST_F(StripingTest, TheResultSumsUpItsStripes) {
  std::atomic<int> number{0};
  Answer([&](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    FakeAnswer answer = RunKernel(request, response);
    response->mutable_timing()->set_total_ns(6000 + ++number);
    if (request.inputs(0).data()[0] == 'f') response->set_implementation("of the first");
    return answer;
  });
  std::string data(static_cast<size_t>(3 * kMiB), 's');
  data[0] = 'f';
  Client client(server_.address(), Over(3));
  const auto result = client.Execute(
      {.kernel = "elements",
       .inputs = {Tensor::Borrow(DataType::kFloat16, {3 * kMiB / 2}, data)},
       .options = {.implementation = "row", .device = "cuda:1", .request_id = "r-7"}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->stripes, 3);
  EXPECT_EQ(result->implementation, "of the first");
  EXPECT_EQ(result->device, "cuda:1");
  EXPECT_EQ(result->request_id, "r-7");
  EXPECT_EQ(result->timing.queue_ns, 3);
  EXPECT_EQ(result->timing.copy_in_ns, 6);
  EXPECT_EQ(result->timing.h2d_ns, 9);
  EXPECT_EQ(result->timing.kernel_ns, 12'000);
  EXPECT_EQ(result->timing.d2h_ns, 15);
  EXPECT_EQ(result->timing.total_ns, 6003);
  EXPECT_EQ(result->launch.bytes_moved, 24'000);
  EXPECT_EQ(result->launch.flops, 1200);
  EXPECT_EQ(result->launch.gpu_kernels, 3);
  EXPECT_EQ(result->launch.theoretical_occupancy, 0.75);
  EXPECT_EQ(result->launch.waves, 1.5);
  EXPECT_EQ(result->attempts, 1);
  EXPECT_GT(result->wall, absl::ZeroDuration());
  for (const v1::ExecuteRequest& request : requests()) {
    EXPECT_EQ(request.request_id(), "r-7");
    EXPECT_EQ(request.implementation(), "row");
    EXPECT_THAT(request.inputs(0).shape(), ElementsAre(kMiB / 2));
  }
}

TEST_F(StripingTest, OneStripeIsRetriedByItself) {
  Answer([refused = false](const v1::ExecuteRequest& request,
                           v1::ExecuteResponse* response) mutable -> FakeAnswer {
    if (!std::exchange(refused, true)) return {absl::ResourceExhaustedError("queue"), "1"};
    return RunKernel(request, response);
  });
  const Tensor x = RandomTensor(DataType::kFloat32, {kMiB});
  Client client(server_.address(), Over(4));
  const auto result = client.Execute({.kernel = "elements", .inputs = {x}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->stripes, 4);
  EXPECT_EQ(result->attempts, 2);
  EXPECT_EQ(server_.executes(), 5);
  Answer(nullptr);
  Client plain(server_.address(), Over(1));
  const auto whole = plain.Execute({.kernel = "elements", .inputs = {x}});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(result->outputs[0].data() == whole->outputs[0].data());
}

TEST(StripingFailureTest, OneStripesErrorEndsTheCallAndCancelsTheOthers) {
  absl::Notification finish;
  std::atomic<int> calls{0};
  FakeServer server([&](const v1::ExecuteRequest&, v1::ExecuteResponse*) -> FakeAnswer {
    if (calls.fetch_add(1) == 2) return {absl::InternalError("stripe defect"), std::nullopt};
    finish.WaitForNotification();
    return {};
  });
  server.AnswerListKernels(ListTestKernels);
  Client client(server.address(), Over(4));
  // Borrowed: it returns only when nobody reads the bytes any more, and then they go.
  auto bytes = std::make_unique<std::vector<char>>(static_cast<size_t>(4 * kMiB), 'x');
  const auto result = client.Execute(
      {.kernel = "elements", .inputs = {Tensor::Borrow(DataType::kFloat32, {kMiB}, *bytes)}});
  bytes.reset();
  EXPECT_EQ(result.status(), absl::InternalError("stripe defect"));
  finish.Notify();
}

TEST(StripingFailureTest, AStripeThatPausesEndsWithTheOthers) {
  absl::Notification paused;
  std::atomic<int> calls{0};
  FakeServer server([&](const v1::ExecuteRequest&, v1::ExecuteResponse*) -> FakeAnswer {
    // The first stripe gets a retry hint of 50 s; the second fails once the first has it.
    if (calls.fetch_add(1) == 0) {
      paused.Notify();
      return {absl::ResourceExhaustedError("queue"), "50000"};
    }
    paused.WaitForNotification();
    return {absl::InvalidArgumentError("no such axis"), std::nullopt};
  });
  server.AnswerListKernels(ListTestKernels);
  Client client(server.address(), Over(2));
  const std::vector<char> bytes(static_cast<size_t>(2 * kMiB));
  const absl::Time start = absl::Now();
  const auto result = client.Execute(
      {.kernel = "elements", .inputs = {Tensor::Borrow(DataType::kFloat32, {kMiB / 2}, bytes)}});
  EXPECT_EQ(result.status(), absl::InvalidArgumentError("no such axis"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(40));
}

// Holds back every answer of ListKernels until `finish`.
void ListAfter(absl::Notification* finish, FakeServer* server) {
  server->AnswerListKernels([finish](v1::ListKernelsResponse*) {
    finish->WaitForNotification();
    return absl::OkStatus();
  });
}

TEST(StripingFailureTest, AListOfKernelsThatNeverComesCostsHalfOfTheTime) {
  absl::Notification finish;
  FakeServer server(RunKernel);
  ListAfter(&finish, &server);
  Client client(server.address(), Over(2));
  const auto result = client.Execute({.kernel = "elements",
                                      .inputs = {RandomTensor(DataType::kFloat32, {kMiB})},
                                      .options = {.timeout = absl::Seconds(8)}});
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.list_kernels(), 1);
  finish.Notify();
}

TEST(StripingFailureTest, WhoWaitsForTheListOfKernelsMayCancelAndKeepsHalfOfItsTime) {
  absl::Notification finish;
  FakeServer server(RunKernel);
  ListAfter(&finish, &server);
  Client client(server.address(), Over(2));
  const auto run = [&](CallOptions options) {
    return client.Execute({.kernel = "elements",
                           .inputs = {RandomTensor(DataType::kFloat32, {kMiB})},
                           .options = std::move(options)});
  };
  const absl::Time start = absl::Now();
  Cancellation asking, waiting;
  absl::Status asked, waited;
  std::thread asks([&] { asked = run({.cancellation = &asking}).status(); });
  EXPECT_TRUE(testing::Eventually([&] { return server.list_kernels() == 1; }));
  std::thread waits([&] { waited = run({.cancellation = &waiting}).status(); });
  // The call that lists the kernels waits for 10 s.
  const auto in_time = run({.timeout = absl::Seconds(4)});
  EXPECT_TRUE(in_time.ok()) << in_time.status();
  waiting.Cancel();
  waits.join();
  EXPECT_EQ(server.list_kernels(), 1);
  asking.Cancel();
  asks.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(9));
  EXPECT_EQ(asked.code(), absl::StatusCode::kCancelled) << asked;
  EXPECT_EQ(waited.code(), absl::StatusCode::kCancelled) << waited;
  finish.Notify();
}

TEST_F(StripingTest, OutputsThatContradictTheirStripesAreTheServersDefect) {
  const Call call{.kernel = "elements", .inputs = {RandomTensor(DataType::kFloat32, {kMiB})}};
  Answer([](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    FakeAnswer answer = RunKernel(request, response);
    v1::Tensor* output = response->mutable_outputs(0);
    output->set_shape(0, output->shape(0) / 2);
    output->add_shape(2);
    return answer;
  });
  Client client(server_.address(), Over(2));
  auto result = client.Execute(call);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("for inputs of shape"));

  // The first stripe's, by its data: one of the call before, cancelled, may come only now, and one
  // of this call when the test has ended.
  Answer([call](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    FakeAnswer answer = RunKernel(request, response);
    const std::string& data = request.inputs(0).data();
    if (std::equal(data.begin(), data.end(), call.inputs[0].data().begin()))
      *response->add_outputs() = v1::Tensor(response->outputs(0));
    return answer;
  });
  result = client.Execute(call);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("differ from stripe to stripe"));
}

TEST_F(StripingTest, OptionsOutOfRangeAreRefusedWithTheirLimits) {
  for (const int connections : {0, -1, 65}) {
    Client client(server_.address(), Over(connections));
    for (const absl::Status& status :
         {client.Execute({.kernel = "elements"}).status(),
          client.ExecuteStream(Call{.kernel = "elements"}).status(), client.ListKernels().status(),
          client.ListDevices().status(), client.Health().status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr("1 to 64"));
    }
  }
  EXPECT_EQ(server_.executes(), 0);
}

}  // namespace
}  // namespace warpcall::client
