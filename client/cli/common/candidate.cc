#include "client/cli/common/candidate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/common/progress.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {

Option CandidateOption::Add(const Arguments& arguments, const std::string& help) {
  const Option candidate = arguments.Add("--candidate", &file_, help).TypeName("FILE.cu");
  arguments
      .Add("--manifest", &manifest_,
           "Read the candidate's manifest from this file; default: its first comment")
      .TypeName("FILE.json")
      .Needs(candidate);
  return candidate;
}

absl::StatusOr<PushSource> CandidateOption::Read(const std::string& kernel) const {
  ASSIGN_OR_RETURN(PushSource source, ReadPushSource(file_, manifest_));
  if (!source.op.empty() && source.op != kernel)
    return absl::InvalidArgumentError(
        absl::StrCat("--candidate ", file_, " is a kernel for ", source.op, ", not for ", kernel));
  return source;
}

client::PushCall CallOf(const PushSource& source) {
  return {.code = source.code, .manifest_json = source.manifest_json};
}

std::string CandidateResult::WhyNot() const {
  return absl::StrCat(verdict.status(), verdict.reason().empty() ? "" : ": ", verdict.reason());
}

absl::StatusOr<CandidateResult> PushCandidate(const client::PushCall& call,
                                              client::Cancellation* cancellation,
                                              client::Client* client) {
  CandidateResult result;
  const auto take = [&result](const client::PushEvent& event) {
    if (event.has_compiled()) {
      result.compiled.push_back(event.compiled());
      Progress::ShowInLast("candidate compiled");
    } else if (event.has_checked()) {
      Progress::ShowInLast("candidate checked");
    } else if (event.has_timed()) {
      result.timed = event;
    }
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(result.verdict,
                   client->Push(call, {.event = take, .cancellation = cancellation}));
  return result;
}

}  // namespace warpcall::cli
