#include "client/cli/common/command.h"

#include "absl/strings/str_cat.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

void PrintAttempt(const client::Attempt& attempt) {
  const std::string bytes =
      attempt.stream
          ? " as a stream"
          : absl::StrCat(" sent ", HumanBytes(static_cast<double>(attempt.sent_bytes)), ", got ",
                         HumanBytes(static_cast<double>(attempt.received_bytes)));
  const std::string end = attempt.status.ok()
                              ? "OK"
                              : absl::StrCat(absl::StatusCodeToString(attempt.status.code()), ": ",
                                             attempt.status.message());
  PrintNote(absl::StrCat(attempt.server, " ", attempt.method, bytes, " within ",
                         HumanTime(absl::ToDoubleNanoseconds(attempt.time)), ": ", end));
}

}  // namespace

client::ClientOptions OptionsOf(const Globals& globals) {
  client::ClientOptions options;
  options.credentials = globals.credentials;
  options.session = globals.session;
  if (globals.verbose) options.observe = PrintAttempt;
  options.queued = [](int ahead) {
    Progress::ShowInLast(absl::StrCat("queued behind ", ahead, ahead == 1 ? " call" : " calls"));
  };
  return options;
}

const char* ClientVersion() { return WARPCALL_VERSION; }

}  // namespace warpcall::cli
