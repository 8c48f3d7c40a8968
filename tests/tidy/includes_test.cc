#include "tests/tidy/includes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace warpcall::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The findings for a file at `path` that includes `header`, as written with its delimiters.
std::vector<std::string> Check(std::string path, absl::string_view header) {
  std::vector<std::string> messages;
  for (const Finding& finding :
       CheckIncludes(MakeSource(std::move(path), absl::StrCat("#include ", header, "\n")))) {
    messages.push_back(ToString(finding));
  }
  return messages;
}

TEST(ScanIncludesTest, ReadsBothFormsAndSkipsComments) {
  const Source source = MakeSource(
      "a.cc", "#include \"a/b.h\"\n// #include \"c.h\"\n#  include <d>\n/*\n#include <e>\n*/\n");
  const std::vector<Include> includes = ScanIncludes(source);
  ASSERT_EQ(includes.size(), 2u);
  EXPECT_EQ(includes[0].path, "a/b.h");
  EXPECT_TRUE(includes[0].quoted);
  EXPECT_EQ(includes[1].path, "d");
  EXPECT_EQ(includes[1].line, 3);
}

TEST(CheckIncludesTest, StandardAndAbseilGoEverywhere) {
  for (const char* path : {"kernels/op.cc", "server/engine/lane.cc", "client/cpp/client.cc"}) {
    EXPECT_THAT(Check(path, "<vector>"), IsEmpty());
    EXPECT_THAT(Check(path, "<sys/socket.h>"), IsEmpty());
    EXPECT_THAT(Check(path, "\"absl/status/status.h\""), IsEmpty());
  }
}

TEST(CheckIncludesTest, KernelsKnowNobodyElse) {
  EXPECT_THAT(Check("kernels/gelu/gelu.cc", "\"kernels/gelu/gelu.h\""), IsEmpty());
  EXPECT_THAT(Check("kernels/gelu/gelu.cc", "\"kernels/cpu/thread_pool.h\""), IsEmpty());
  EXPECT_THAT(Check("kernels/gelu/gelu.cc", "\"kernels/op.h\""), IsEmpty());
  EXPECT_THAT(Check("kernels/gelu/gelu.cc", "\"server/engine/job.h\""),
              ElementsAre(HasSubstr("kernels/gelu/gelu.cc:1: includes server/engine/job.h: "
                                    "kernels/ may include only: ")));
  EXPECT_EQ(Check("kernels/gelu/gelu.cc", "\"client/cpp/client.h\"").size(), 1u);
  EXPECT_EQ(Check("kernels/gelu/gelu.cc", "\"proto/wire/tensor_split.h\"").size(), 1u);
}

TEST(CheckIncludesTest, MeasuringKnowsDevicesButNoWire) {
  for (const char* header : {"\"server/engine/clock.h\"", "\"server/runtime/device.h\"",
                             "\"kernels/registry.h\"", "\"server/inspect/fill.h\""})
    EXPECT_THAT(Check("server/inspect/benchmark.cc", header), IsEmpty());
  for (const char* header : {"\"server/runtime/cuda/cuda_stream.h\"",
                             "\"server/transport/codec.h\"", "<grpcpp/grpcpp.h>"})
    EXPECT_EQ(Check("server/inspect/benchmark.cc", header).size(), 1u) << header;
}

TEST(CheckIncludesTest, OpsDoNotKnowEachOtherButTheCatalogKnowsAll) {
  EXPECT_EQ(Check("kernels/gelu/gelu.cc", "\"kernels/softmax/softmax.h\"").size(), 1u);
  EXPECT_EQ(Check("kernels/common/data_type.h", "\"kernels/softmax/softmax.h\"").size(), 1u);
  EXPECT_THAT(Check("kernels/catalog_cpu.cc", "\"kernels/softmax/softmax.h\""), IsEmpty());
}

TEST(CheckIncludesTest, OnlyTransportClientAndTestsSeeGrpc) {
  for (const char* header :
       {"<grpcpp/grpcpp.h>", "\"google/protobuf/message.h\"", "\"warpcall/v1/warpcall.pb.h\""}) {
    EXPECT_THAT(Check("server/transport/codec.cc", header), IsEmpty());
    EXPECT_THAT(Check("client/cpp/client.cc", header), IsEmpty());
    EXPECT_THAT(Check("tests/e2e/drain_test.cc", header), IsEmpty());
    for (const char* path : {"server/main.cc", "server/engine/job.h", "server/metrics/sink.cc",
                             "client/cli/run.cc", "kernels/op.h"}) {
      EXPECT_THAT(Check(path, header), ElementsAre(HasSubstr("must not see grpc")));
    }
  }
}

TEST(CheckIncludesTest, OnlyMetricsSeesPrometheus) {
  for (const char* header : {"\"prometheus/registry.h\"", "<civetweb.h>"}) {
    EXPECT_THAT(Check("server/metrics/sink.cc", header), IsEmpty());
    for (const char* path : {"server/main.cc", "server/engine/job.h", "server/transport/a.cc"}) {
      EXPECT_THAT(Check(path, header), ElementsAre(HasSubstr("must not see "))) << header;
    }
  }
}

TEST(CheckIncludesTest, OnlyTestsSpeakHttpByALibrary) {
  EXPECT_THAT(Check("tests/server/metrics/http_server_test.cc", "<httplib.h>"), IsEmpty());
  for (const char* path : {"server/main.cc", "server/metrics/http_server.cc"})
    EXPECT_THAT(Check(path, "<httplib.h>"), ElementsAre(HasSubstr("must not see httplib")));
}

TEST(CheckIncludesTest, OnlyTheCudaRuntimeAndKernelsSeeCuda) {
  EXPECT_THAT(Check("server/runtime/cuda/stream.cc", "<cuda_runtime.h>"), IsEmpty());
  EXPECT_THAT(Check("kernels/gelu/gelu_cuda.cu", "<cuda_bf16.h>"), IsEmpty());
  for (const char* path : {"server/runtime/cpu/device.cc", "server/engine/lane.cc",
                           "server/main.cc", "client/cpp/client.cc"}) {
    EXPECT_THAT(Check(path, "<cuda_runtime.h>"), ElementsAre(HasSubstr("must not see cuda")));
  }
}

TEST(CheckIncludesTest, EngineKnowsNoBackendTransportOrMetrics) {
  EXPECT_THAT(Check("server/engine/lane.cc", "\"server/runtime/device.h\""), IsEmpty());
  for (const char* header : {"\"server/runtime/cpu/cpu_device.h\"", "\"server/transport/codec.h\"",
                             "\"server/metrics/prometheus_sink.h\"", "\"server/config.h\""}) {
    EXPECT_EQ(Check("server/engine/lane.cc", header).size(), 1u) << header;
  }
}

TEST(CheckIncludesTest, ClientKnowsNoServer) {
  EXPECT_THAT(Check("client/cpp/client.h", "\"kernels/common/data_type.h\""), IsEmpty());
  EXPECT_EQ(Check("client/cpp/client.h", "\"kernels/op.h\"").size(), 1u);
  EXPECT_EQ(Check("client/cli/main.cc", "\"server/config.h\"").size(), 1u);
  EXPECT_EQ(Check("client/cli/bench/plot.cc", "\"client/cli/load/run.h\"").size(), 1u);
  EXPECT_EQ(Check("client/cli/load/calls.cc", "\"client/cpp/rpc/channel.h\"").size(), 1u);
  EXPECT_EQ(Check("client/cpp/rpc/channel.cc", "\"client/cpp/codec/codec.h\"").size(), 1u);
  EXPECT_EQ(Check("client/cpp/client.h", "\"tests/kernels/run_row.h\"").size(), 1u);
}

TEST(CheckIncludesTest, RefusesCompiledFilesUnknownLibrariesAndUnknownRooms) {
  EXPECT_THAT(Check("tests/kernels/a_test.cc", "\"kernels/op.cc\""),
              ElementsAre(HasSubstr("never included")));
  EXPECT_THAT(Check("kernels/op.cc", "<boost/optional.hpp>"), ElementsAre(HasSubstr("not know")));
  EXPECT_THAT(Check("attic/op.cc", "<vector>"), ElementsAre(HasSubstr("no room")));
}

}  // namespace
}  // namespace warpcall::tidy
