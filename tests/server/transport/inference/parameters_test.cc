#include "server/transport/inference/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/softmax/softmax.h"
#include "server/transport/inference/statistics.h"

namespace warpcall::oip {
namespace {

using inference::InferParameter;
using ::testing::HasSubstr;

InferParameter Whole(int64_t value) {
  InferParameter parameter;
  parameter.set_int64_param(value);
  return parameter;
}

InferParameter TextParameter(const std::string& value) {
  InferParameter parameter;
  parameter.set_string_param(value);
  return parameter;
}

Parameters With(const std::string& name, const InferParameter& parameter) {
  Parameters parameters;
  parameters[name] = parameter;
  return parameters;
}

int64_t TimeoutNs(int64_t timeout_us) {
  return ReadCallParameters(With("timeout", Whole(timeout_us)))->timeout_ns;
}

TEST(ReadCallParameters, TimeoutsAreMicroseconds) {
  EXPECT_EQ(TimeoutNs(1500), 1'500'000);
  EXPECT_EQ(TimeoutNs(0), kNoDeadline);
  EXPECT_EQ(TimeoutNs(std::numeric_limits<int64_t>::max()), kNoDeadline);
  EXPECT_EQ(ReadCallParameters({})->timeout_ns, kNoDeadline);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadCallParameters(With("timeout", Whole(-1))).status()));
  InferParameter largest;
  largest.set_uint64_param(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(ReadCallParameters(With("timeout", largest))->timeout_ns, kNoDeadline);
  EXPECT_TRUE(ReadCallParameters(With("priority", largest)).ok());
}

TEST(ReadAttributes, LeaveOutWhatIsTheCallsOwn) {
  Parameters parameters = With("axis", TextParameter("-2"));
  for (const char* const name : {"implementation", "device", "timeout", "priority", "sequence_id"})
    parameters[name] = Whole(0);
  const auto attributes = ReadAttributes(parameters, SoftmaxOp());
  ASSERT_TRUE(attributes.ok());
  ASSERT_EQ(attributes->size(), 1u);
  EXPECT_EQ((*attributes)[0].name, "axis");
  EXPECT_EQ(std::get<int64_t>((*attributes)[0].value), -2);
}

TEST(ReadAttributes, RefusesNumbersThatDoNotFit) {
  InferParameter large;
  large.set_uint64_param(uint64_t{1} << 63);
  InferParameter real;
  real.set_double_param(1);
  for (const InferParameter& wrong : {large, real, TextParameter(""), TextParameter("1x"),
                                      TextParameter("9223372036854775808"), InferParameter()}) {
    const absl::Status status = ReadAttributes(With("axis", wrong), SoftmaxOp()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong.DebugString();
    EXPECT_THAT(status.message(), HasSubstr("axis"));
  }
}

TEST(ReadRegionUse, NeedsASizeAndTakesNothingNegative) {
  Parameters parameters;
  EXPECT_FALSE(ReadRegionUse(parameters)->has_value());
  parameters["shared_memory_region"] = TextParameter("r");
  EXPECT_THAT(ReadRegionUse(parameters).status().message(),
              HasSubstr("without shared_memory_byte_size"));
  parameters["shared_memory_byte_size"] = Whole(64);
  EXPECT_EQ((*ReadRegionUse(parameters))->bytes, 64u);
  EXPECT_EQ((*ReadRegionUse(parameters))->offset, 0u);
  parameters["shared_memory_offset"] = Whole(8);
  EXPECT_EQ((*ReadRegionUse(parameters))->offset, 8u);
  parameters["shared_memory_offset"] = Whole(-8);
  EXPECT_THAT(ReadRegionUse(parameters).status().message(), HasSubstr("is -8"));
}

TEST(Statistics, CountWhatPerfAnalyzerReads) {
  Statistics statistics(2);
  RequestTrace trace;
  trace.queue_ns = 1;
  trace.copy_in_ns = 10;
  trace.h2d_ns = 5;
  trace.kernel_ns = 100;
  trace.d2h_ns = 3;
  trace.total_ns = 200;
  statistics.Record(1, trace, true);
  statistics.Record(1, trace, true);
  statistics.Record(1, trace, false);
  EXPECT_FALSE(statistics.IsUsed(0));
  EXPECT_TRUE(statistics.IsUsed(1));
  inference::ModelStatistics told;
  statistics.WriteTo(1, &told);
  const auto is = [](const inference::StatisticDuration& duration, uint64_t count, uint64_t ns) {
    return duration.count() == count && duration.ns() == ns;
  };
  const inference::InferStatistics& sums = told.inference_stats();
  EXPECT_EQ(told.inference_count(), 2u);
  EXPECT_EQ(told.execution_count(), 2u);
  EXPECT_TRUE(is(sums.success(), 2, 400)) << told.DebugString();
  EXPECT_TRUE(is(sums.fail(), 1, 200)) << told.DebugString();
  EXPECT_TRUE(is(sums.queue(), 3, 3)) << told.DebugString();
  EXPECT_TRUE(is(sums.compute_input(), 2, 30)) << told.DebugString();
  EXPECT_TRUE(is(sums.compute_infer(), 2, 200)) << told.DebugString();
  EXPECT_TRUE(is(sums.compute_output(), 2, 6)) << told.DebugString();
  inference::ModelStatistics none;
  statistics.WriteTo(0, &none);
  EXPECT_EQ(none.inference_stats().queue().count(), 0u);
  EXPECT_EQ(none.batch_stats_size(), 0);
}

}  // namespace
}  // namespace warpcall::oip
