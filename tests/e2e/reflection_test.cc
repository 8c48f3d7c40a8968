// Server reflection, as grpcurl asks: what services there are, and the file that describes one.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

// One question to grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo, both as bytes: the
// library has no generated code of it for clients.
std::string Reflect(const std::string& address, const std::string& question) {
  grpc::GenericStub stub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto done = [&] {
    void* tag;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  call->StartCall(nullptr);
  EXPECT_TRUE(done());
  const grpc::Slice slice(question);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  EXPECT_TRUE(done());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  EXPECT_TRUE(done());
  grpc::Status status;
  call->Finish(&status, nullptr);
  done();
  EXPECT_TRUE(status.ok()) << status.error_message();
  grpc::Slice whole;
  EXPECT_TRUE(answer.DumpToSingleSlice(&whole).ok());
  return std::string(reinterpret_cast<const char*>(whole.begin()), whole.size());
}

// A field of bytes, of fewer than 128.
std::string Field(char tag, const std::string& value) {
  return std::string(1, tag) + static_cast<char>(value.size()) + value;
}

TEST(Reflection, ListsAndDescribesTheService) {
  ServerProcess server;
  const std::string names = Reflect(server.address(), Field('\x3a', "*"));  // list_services = 7
  EXPECT_THAT(names, HasSubstr("warpcall.v1.KernelService"));
  EXPECT_THAT(names, HasSubstr("grpc.health.v1.Health"));
  // file_containing_symbol = 4. The answer's file_descriptor_response = 4 holds
  // FileDescriptorProtos in field 1; ours is found by its name, which is its own first field.
  const std::string answer = Reflect(server.address(), Field('\x22', "warpcall.v1.KernelService"));
  const std::string name = Field('\x0a', "warpcall/v1/warpcall.proto");
  const size_t begin = answer.find(name + Field('\x12', "warpcall.v1"));
  ASSERT_NE(begin, std::string::npos);
  google::protobuf::FileDescriptorProto expected, described;
  v1::ExecuteRequest::descriptor()->file()->CopyTo(&expected);
  std::string bytes;
  ASSERT_TRUE(expected.SerializeToString(&bytes));
  ASSERT_TRUE(described.ParseFromString(answer.substr(begin, bytes.size())));
  EXPECT_EQ(described.DebugString(), expected.DebugString());
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
