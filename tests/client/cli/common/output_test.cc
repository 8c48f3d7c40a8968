#include "client/cli/common/output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "client/cpp/rpc/retry.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

TEST(StatusJsonTest, SaysWhetherTheSameCallMaySucceedLaterAndWhen) {
  const absl::Status full = absl::ResourceExhaustedError("4 wait");
  const json waits = ToJson(client::WithRetryPushback(full, 250));
  EXPECT_EQ(waits, json({{"code", "RESOURCE_EXHAUSTED"},
                         {"message", "4 wait"},
                         {"retryable", true},
                         {"retry_after_ms", 250},
                         {"request_id", nullptr}}));
  const auto advice = [](const absl::Status& status) {
    const json value = ToJson(status);
    return std::pair(value["retryable"], value["retry_after_ms"]);
  };
  EXPECT_EQ(advice(client::WithRetryPushback(full, 0)), std::pair(json(true), json(0)));
  EXPECT_EQ(advice(client::WithRetryPushback(full, -1)), std::pair(json(false), json()));
  EXPECT_EQ(advice(full), std::pair(json(false), json()));
  EXPECT_EQ(advice(absl::UnavailableError("it drains")), std::pair(json(true), json()));
  EXPECT_EQ(advice(client::WithRetryPushback(absl::UnavailableError("never"), -1)),
            std::pair(json(false), json()));
}

}  // namespace
}  // namespace warpcall::cli
