#include "tests/e2e/counted_server.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/eventually.h"

namespace warpcall::testing {
namespace {

Samples CountsOf(const std::vector<Ended>& requests) {
  Samples counts;
  for (const Ended& request : requests) {
    const std::string labels = absl::StrCat("implementation=\"", request.implementation,
                                            "\",kernel=\"", request.kernel, "\"}");
    const std::string code = absl::StatusCodeToString(static_cast<absl::StatusCode>(request.code));
    ++counts[absl::StrCat("warpcall_requests_total{code=\"", code, "\",", labels)];
    ++counts[absl::StrCat("warpcall_request_duration_seconds_count{", labels)];
  }
  return counts;
}

Samples Counted(const ServerProcess& server) {
  Samples counts;
  for (const auto& [series, value] : server.Metrics()) {
    const bool counts_requests =
        absl::StartsWith(series, "warpcall_requests_total{") ||
        absl::StartsWith(series, "warpcall_request_duration_seconds_count{");
    if (counts_requests && value != 0) counts[series] = value;
  }
  return counts;
}

}  // namespace

Ended HeldEnds(grpc::StatusCode code) { return {code, "held", "reference"}; }
Ended GeluEnds(grpc::StatusCode code) { return {code, "gelu", "reference"}; }

v1::ExecuteRequest SmallRequest() {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  request.set_implementation("reference");
  return request;
}

CountedServer::CountedServer(const std::vector<std::string>& flags)
    : process_(flags), channel_(Connect(process_.address())) {}

Reply CountedServer::Send(const std::string& message, Ended ended) {
  Reply reply = CallRaw(channel_, message);
  EXPECT_EQ(reply.status.error_code(), ended.code) << reply.CodeAndMessage();
  if (reply.status.ok()) ended.implementation = reply.response.implementation();
  Expect({ended}, reply.CodeAndMessage());
  return reply;
}

void CountedServer::Expect(const std::vector<Ended>& more, const std::string& what) {
  ended_.insert(ended_.end(), more.begin(), more.end());
  const auto total = static_cast<double>(ended_.size());
  EXPECT_TRUE(Eventually([&] { return process_.Sum("warpcall_requests_total") >= total; })) << what;
  EXPECT_EQ(Counted(process_), CountsOf(ended_)) << what;
}

void CountedServer::ExpectNothingMore() {
  EXPECT_TRUE(Eventually([&] {
    return Waiting(0) && process_.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0;
  }));
  Send(SmallRequest(), GeluEnds(grpc::StatusCode::OK));
  EXPECT_EQ(process_.Stop(), 0);
}

}  // namespace warpcall::testing
