// Where tensor bytes lie on their way through a real server: inputs are copied out of the slices in
// which gRPC received them, and answers are sent from the very memory that the device wrote.
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/registry.h"
#include "server/engine/engine.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/transport/kernel_service.h"

namespace warpcall {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

using Bytes = absl::Span<const char>;

bool Holds(Bytes whole, Bytes part) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

int64_t SizeOf(const std::vector<Bytes>& pieces) {
  int64_t size = 0;
  for (const Bytes& piece : pieces) size += static_cast<int64_t>(piece.size());
  return size;
}

// How many bytes of `pieces` lie in one of `wholes`, or in pieces of at most `anywhere_max`.
int64_t SizeWithin(const std::vector<Bytes>& wholes, const std::vector<Bytes>& pieces,
                   size_t anywhere_max = 0) {
  int64_t size = 0;
  for (const Bytes& piece : pieces)
    for (const Bytes& whole : wholes)
      if (Holds(whole, piece) || piece.size() <= anywhere_max) {
        size += static_cast<int64_t>(piece.size());
        break;
      }
  return size;
}

// What passed, seen from gRPC's side and from the device's. Thread-safe.
class Seen {
 public:
  // Keep the messages' slices, so that no address comes twice.
  void Received(const grpc::ByteBuffer& message) {
    absl::MutexLock lock(&mutex_);
    Keep(message, &received_);
  }
  void Sent(const grpc::ByteBuffer& message) {
    absl::MutexLock lock(&mutex_);
    Keep(message, &sent_);
  }
  void Ran(const Job& job, absl::Span<const StagingRange> staging) {
    absl::MutexLock lock(&mutex_);
    for (const InputPieces& pieces : job.inputs)
      copied_.insert(copied_.end(), pieces.begin(), pieces.end());
    for (size_t i = job.inputs.size(); i < staging.size(); ++i)
      written_.emplace_back(staging[i].data, staging[i].bytes);
  }
  void Recorded(const RequestTrace& trace) {
    absl::MutexLock lock(&mutex_);
    copy_in_bytes_ += trace.copy_in_bytes;
    copy_out_bytes_ += trace.copy_out_bytes;
  }

  void ExpectOneCopyInAndNoneOut(int64_t input_bytes, int64_t output_bytes) {
    absl::MutexLock lock(&mutex_);
    EXPECT_EQ(SizeOf(copied_), input_bytes);
    // A slice as short as the last bytes of a message that a read cut off may be has no memory:
    // gRPC keeps them in the handle, of which each is a copy.
    EXPECT_EQ(SizeWithin(received_, copied_, GRPC_SLICE_INLINED_SIZE), input_bytes)
        << "copied before they were copied";
    EXPECT_EQ(SizeOf(written_), output_bytes);
    EXPECT_EQ(SizeWithin(written_, sent_), output_bytes) << "not sent from where they were written";
    EXPECT_EQ(copy_in_bytes_, input_bytes);
    EXPECT_EQ(copy_out_bytes_, 0);
  }

 private:
  void Keep(const grpc::ByteBuffer& message, std::vector<Bytes>* bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(message.Dump(&slices).ok());
    for (grpc::Slice& slice : slices) {
      kept_.push_back(std::make_unique<grpc::Slice>(std::move(slice)));
      bytes->emplace_back(reinterpret_cast<const char*>(kept_.back()->begin()),
                          kept_.back()->size());
    }
  }

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<grpc::Slice>> kept_ ABSL_GUARDED_BY(mutex_);
  std::vector<Bytes> received_ ABSL_GUARDED_BY(mutex_);
  std::vector<Bytes> copied_ ABSL_GUARDED_BY(mutex_);   // by lanes, from where this is
  std::vector<Bytes> written_ ABSL_GUARDED_BY(mutex_);  // by devices
  std::vector<Bytes> sent_ ABSL_GUARDED_BY(mutex_);
  int64_t copy_in_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t copy_out_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

class Watcher final : public grpc::experimental::Interceptor {
 public:
  explicit Watcher(Seen* seen) : seen_(seen) {}
  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      const auto* message = static_cast<const grpc::ByteBuffer*>(methods->GetRecvMessage());
      if (message != nullptr && message->Valid()) seen_->Received(*message);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const grpc::ByteBuffer* message = methods->GetSerializedSendMessage();
      if (message != nullptr && message->Valid()) seen_->Sent(*message);
    }
    methods->Proceed();
  }

 private:
  Seen* const seen_;
};

class Watchers final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Watchers(Seen* seen) : seen_(seen) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo*) override {
    return new Watcher(seen_);
  }

 private:
  Seen* const seen_;
};

class SeeingExecutor final : public Executor {
 public:
  SeeingExecutor(std::unique_ptr<Executor> inner, Seen* seen)
      : inner_(std::move(inner)), seen_(seen) {}
  absl::Status BindThread() override { return inner_->BindThread(); }
  absl::Status Run(const Job& job, absl::Span<const StagingRange> staging) override {
    seen_->Ran(job, staging);
    return inner_->Run(job, staging);
  }

 private:
  const std::unique_ptr<Executor> inner_;
  Seen* const seen_;
};

class SeeingSink final : public MetricsSink {
 public:
  explicit SeeingSink(Seen* seen) : seen_(seen) {}
  void Record(const RequestTrace& trace) override { seen_->Recorded(trace); }
  void RecordInspection(Inspection, absl::StatusCode, RejectReason) override {}
  void NoteAchievedOccupancy(int, int, double) override {}

 private:
  Seen* const seen_;
};

class NoCopiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AddCpuKernels(&registry_);
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<CpuDevice>(2));
    EngineOptions options;
    options.staging_bytes = 64 << 20;
    options.copy_threads = 2;
    options.create_executor = [this](Device* device) -> absl::StatusOr<std::unique_ptr<Executor>> {
      auto inner = CreateLocalExecutor(device, MonotonicNs);
      if (!inner.ok()) return inner.status();
      return std::make_unique<SeeingExecutor>(*std::move(inner), &seen_);
    };
    engine_ = *Engine::Create(registry_, std::move(devices), options);
    deps_.registry = &registry_;
    deps_.engine = engine_.get();
    deps_.metrics = &sink_;
    deps_.clock = MonotonicNs;
    deps_.message_bytes_max = 64 << 20;
    deps_.stream_window_bytes = 1 << 20;
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
    watchers.push_back(std::make_unique<Watchers>(&seen_));
    builder.experimental().SetInterceptorCreators(std::move(watchers));
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = v1::KernelService::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
  }
  void TearDown() override { server_->Shutdown(); }

  static void AddInput(std::vector<int64_t> shape, v1::ExecuteRequest* request) {
    v1::Tensor& input = *request->add_inputs();
    input.set_data_type(v1::DATA_TYPE_FLOAT32);
    int64_t elements = 1;
    for (const int64_t dim : shape) {
      input.add_shape(dim);
      elements *= dim;
    }
    input.set_data(std::string(static_cast<size_t>(4 * elements), 'x'));
  }

  Seen seen_;
  SeeingSink sink_{&seen_};
  Registry registry_;
  std::unique_ptr<Engine> engine_;
  ExecuteDeps deps_{};
  KernelService service_{&deps_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::KernelService::Stub> stub_;
};

TEST_F(NoCopiesTest, ExecuteCopiesInputsOnceAndOutputsNever) {
  v1::ExecuteRequest request;
  request.set_kernel("matmul");
  AddInput({700, 300}, &request);
  AddInput({300, 900}, &request);
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  const grpc::Status status = stub_->Execute(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  seen_.ExpectOneCopyInAndNoneOut(4 * (700 * 300 + 300 * 900), 4 * 700 * 900);
}

TEST_F(NoCopiesTest, ExecuteDoesSoForSmallOnesToo) {
  v1::ExecuteRequest request;
  request.set_kernel("gelu");
  AddInput({250}, &request);
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    ASSERT_TRUE(stub_->Execute(&context, request, &response).ok());
  }
  seen_.ExpectOneCopyInAndNoneOut(20 * 1000, 20 * 1000);
}

TEST_F(NoCopiesTest, ExecuteStreamCopiesInputsOnceAndOutputsNever) {
  constexpr int64_t kElements = 1'400'000;
  constexpr int64_t kChunk = 300'000;
  grpc::ClientContext context;
  const auto stream = stub_->ExecuteStream(&context);
  std::thread writer([&] {
    v1::ExecuteStreamRequest message;
    message.mutable_header()->set_kernel("gelu");
    AddInput({kElements}, message.mutable_header());
    message.mutable_header()->mutable_inputs(0)->clear_data();
    EXPECT_TRUE(stream->Write(message));
    for (int64_t offset = 0; offset < 4 * kElements; offset += kChunk) {
      message.mutable_chunk()->set_offset(offset);
      message.mutable_chunk()->set_data(
          std::string(static_cast<size_t>(std::min(kChunk, 4 * kElements - offset)), 'x'));
      EXPECT_TRUE(stream->Write(message));
    }
    stream->WritesDone();
  });
  int64_t came = 0;
  for (v1::ExecuteStreamResponse message; stream->Read(&message);)
    came += static_cast<int64_t>(message.chunk().data().size());
  writer.join();
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(came, 4 * kElements);
  seen_.ExpectOneCopyInAndNoneOut(4 * kElements, 4 * kElements);
}

}  // namespace
}  // namespace warpcall
