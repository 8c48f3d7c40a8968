// `warpcall push --html`: a push as one page that needs nothing else.
#pragma once

#include <string>

#include "client/cli/push/report.h"

namespace warpcall::cli {

// Returns an HTML document: verdict, compilations with their logs, checks, histogram of the errors,
// times, and roofline with the push on it. It has no scripts, its policy allows none, and it loads
// nothing. All text of the server and of the kernel's author is escaped.
std::string PushPage(const PushReport& report);

}  // namespace warpcall::cli
