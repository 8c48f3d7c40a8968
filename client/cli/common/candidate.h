// `--candidate`: a kernel of the user's where bench, profile and describe otherwise show the
// server's own. The server compiles and checks it, and times it, as for `warpcall push`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/common/options.h"
#include "client/cli/common/push_source.h"
#include "warpcall/client.h"

namespace warpcall::cli {

// --candidate FILE.cu, and --manifest FILE.json if the manifest is not a comment in that file.
class CandidateOption {
 public:
  // This object must not move afterwards: `arguments` write into it. `help` describes --candidate.
  Option Add(const Arguments& arguments, const std::string& help);

  bool given() const { return !file_.empty(); }
  // As ReadPushSource. INVALID_ARGUMENT if the manifest's op is not `kernel`.
  absl::StatusOr<PushSource> Read(const std::string& kernel) const;

 private:
  std::string file_;
  std::string manifest_;
};

// A call with the code and manifest of `source`.
client::PushCall CallOf(const PushSource& source);

// A push of one problem that has come to its verdict.
struct CandidateResult {
  std::vector<client::PushEvent> events = {};  // the verdict last

  const client::PushVerdict& verdict() const { return events.back().verdict(); }
  // Has no results if the kernel was not timed.
  const v1::PushTimed& timed() const;
  bool passed() const { return verdict().status() == "PASSED"; }
  // "INCORRECT_NUMERICAL: ..."; of a verdict that is not PASSED.
  std::string WhyNot() const;
};

// Shows its progress in the newest Progress. `cancellation` may be null.
absl::StatusOr<CandidateResult> PushCandidate(const client::PushCall& call,
                                              client::Cancellation* cancellation,
                                              client::Client* client);

}  // namespace warpcall::cli
