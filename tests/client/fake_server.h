// A gRPC server whose answers a test decides. Its messages go through protobuf's own parser, so
// what the client encodes by hand is checked against the real thing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {

// Result of one Execute call. Several threads may make answers at once.
struct FakeAnswer {
  absl::Status status;
  // Sent as the trailer grpc-retry-pushback-ms when given.
  std::optional<std::string> pushback;
  // Sent as the trailer warpcall-lost-handles unless empty.
  std::string lost_handles = {};
  // Sent as the trailer warpcall-request-id unless empty.
  std::string request_id = {};
};
using ExecuteHandler = std::function<FakeAnswer(const v1::ExecuteRequest&, v1::ExecuteResponse*)>;

using GraphHandler =
    std::function<FakeAnswer(const v1::ExecuteGraphRequest&, v1::ExecuteGraphResponse*)>;
// Gets all messages of a Put.
using PutHandler = std::function<FakeAnswer(const std::vector<v1::PutRequest>&, v1::PutResponse*)>;
using ListKernelsHandler = std::function<absl::Status(v1::ListKernelsResponse*)>;
using ServerInfoHandler = std::function<absl::Status(v1::ServerInfoResponse*)>;
using ServerStream = grpc::ServerReaderWriter<v1::ExecuteStreamResponse, v1::ExecuteStreamRequest>;
using StreamHandler = std::function<absl::Status(ServerStream*)>;
using BenchmarkHandler =
    std::function<FakeAnswer(const v1::BenchmarkRequest&, v1::BenchmarkResponse*)>;
using BenchmarkWriter = grpc::ServerWriter<v1::BenchmarkResponse>;
// `cancelled` returns true once the client has gone. `queued` reports the number of calls before
// this one to the client, before anything is written.
struct BenchmarkStreamCall {
  const v1::BenchmarkRequest& request;
  BenchmarkWriter* writer;
  std::function<bool()> cancelled;
  std::function<void(int ahead)> queued;
};
using BenchmarkStreamHandler = std::function<FakeAnswer(const BenchmarkStreamCall&)>;
// As BenchmarkStreamCall.
struct PushStreamCall {
  const v1::PushRequest& request;
  grpc::ServerWriter<v1::PushEvent>* writer;
  std::function<bool()> cancelled;
};
using PushHandler = std::function<FakeAnswer(const PushStreamCall&)>;
using ProfileHandler = std::function<FakeAnswer(const v1::ProfileRequest&, v1::ProfileResponse*)>;
using DescribeHandler =
    std::function<FakeAnswer(const v1::DescribeRequest&, v1::DescribeResponse*)>;

// By default, ExecuteStream, ExecuteGraph, Put, Benchmark, its stream, Tune, Profile, Describe and
// Push answer UNIMPLEMENTED, ExecuteGraph and Push as methods that the server does not know;
// ListKernels and ListDevices answer with a "gelu" of every attribute type and a device "cpu";
// health is SERVING.
class FakeServer {
 public:
  // Listens on a port of its own choice on 127.0.0.1, unless `address` says otherwise.
  explicit FakeServer(ExecuteHandler handler, const std::string& address = "127.0.0.1:0");
  ~FakeServer();

  const std::string& address() const { return address_; }
  void SetServing(bool serving);
  // All before the first call.
  void AnswerListKernels(ListKernelsHandler handler);
  void AnswerServerInfo(ServerInfoHandler handler);
  void AnswerExecuteStream(StreamHandler handler);
  void AnswerExecuteGraph(GraphHandler handler);
  void AnswerPut(PutHandler handler);
  void AnswerBenchmark(BenchmarkHandler handler);
  void AnswerBenchmarkStream(BenchmarkStreamHandler handler);
  void AnswerTune(BenchmarkHandler handler);
  void AnswerProfile(ProfileHandler handler);
  void AnswerDescribe(DescribeHandler handler);
  void AnswerPush(PushHandler handler);
  // Calls that arrived.
  int executes() const;
  int list_kernels() const;
  int execute_streams() const;
  // The connections on which Execute calls arrived, by the client's addresses.
  std::set<std::string> peers() const;
  // The header `traceparent` of each Execute, ExecuteStream and ExecuteGraph that had one.
  std::multiset<std::string> traces() const;
  // Timeout of each call on arrival, in order; without streams.
  std::vector<absl::Duration> timeouts() const;
  // Nothing answers at address() any more.
  void Stop();

 private:
  struct Impl;
  std::string address_;
  const std::unique_ptr<Impl> impl_;
};

// Returns the inputs as outputs, and fixed timings.
FakeAnswer EchoInputs(const v1::ExecuteRequest& request, v1::ExecuteResponse* response);

// Answers each output with the first input of its step, which must be an input of the request, and
// each step with fixed times. Kept outputs get the handles kept-NAME.
FakeAnswer EchoGraph(const v1::ExecuteGraphRequest& request, v1::ExecuteGraphResponse* response);

// EchoInputs for streams: answers each chunk with itself before it reads the next, as a server does
// that keeps nothing.
absl::Status EchoStream(ServerStream* stream);

// Merges a message in protobuf's text format.
void Merge(const std::string& text, google::protobuf::Message* message);
// Returns the message in that format, on one line.
std::string Text(const google::protobuf::Message& message);

}  // namespace warpcall::testing
