// Server reflection as grpcurl uses it: the services, and the file that describes one.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

// One question to ServerReflectionInfo of grpc.reflection.`version`, both as bytes.
std::string Reflect(const std::string& address, const std::string& version,
                    const std::string& question) {
  grpc::GenericStub stub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(
      &context,
      absl::StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo"), &queue);
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

TEST(Reflection, ListsAndDescribesTheServiceInBothVersions) {
  ServerProcess server;
  for (const char* const version : {"v1", "v1alpha"}) {
    // list_services = 7
    const std::string names = Reflect(server.address(), version, Field('\x3a', "*"));
    EXPECT_THAT(names, HasSubstr("warpcall.v1.KernelService"));
    EXPECT_THAT(names, HasSubstr("grpc.health.v1.Health"));
    EXPECT_THAT(names, HasSubstr("grpc.reflection.v1.ServerReflection"));
    // file_containing_symbol = 4. The answer's file_descriptor_response = 4 holds
    // FileDescriptorProtos in field 1; ours is found by its name, which is its own first field.
    const std::string answer =
        Reflect(server.address(), version, Field('\x22', "warpcall.v1.KernelService"));
    const std::string name = Field('\x0a', "warpcall/v1/warpcall.proto");
    const size_t begin = answer.find(name + Field('\x12', "warpcall.v1"));
    ASSERT_NE(begin, std::string::npos);
    google::protobuf::FileDescriptorProto expected, described;
    v1::ExecuteRequest::descriptor()->file()->CopyTo(&expected);
    std::string bytes;
    ASSERT_TRUE(expected.SerializeToString(&bytes));
    ASSERT_TRUE(described.ParseFromString(answer.substr(begin, bytes.size())));
    EXPECT_EQ(described.DebugString(), expected.DebugString());
  }
  EXPECT_EQ(server.Stop(), 0);
}

// A file comes with its imports; the answer
// reports an unknown name, and the stream goes on.
TEST(Reflection, AnswersByFileAndSaysWhatItDoesNotKnow) {
  ServerProcess server;
  const std::string file =
      Reflect(server.address(), "v1",
              Field('\x1a', "inference/grpc_service.proto"));  // file_by_filename = 3
  EXPECT_THAT(file, HasSubstr("ModelInferRequest"));
  EXPECT_THAT(file, HasSubstr("model_config.proto"));
  EXPECT_THAT(Reflect(server.address(), "v1", Field('\x22', "no.such.Service")),
              HasSubstr("unknown name 'no.such.Service'"));
  EXPECT_THAT(Reflect(server.address(), "v1", Field('\x32', "no.such.Message")),
              HasSubstr("unknown message type 'no.such.Message'"));
  EXPECT_THAT(Reflect(server.address(), "v1", ""), HasSubstr("asks for nothing"));
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
