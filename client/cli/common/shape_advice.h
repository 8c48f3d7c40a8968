// What --shape could say in place of what it does.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cpp/client.h"

namespace warpcall::cli {

// `refusal` and, where it is InputShapes' because shapes of weights are missing, some that `kernel`
// takes: the server is asked, by Describe, which of its guesses fits.
absl::Status WithShapes(const absl::Status& refusal, const std::string& kernel,
                        client::Client* client);

}  // namespace warpcall::cli
