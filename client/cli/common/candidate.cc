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
           "Read the candidate's manifest from this file; default: the comment that it begins with")
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

const v1::PushTimed& CandidateResult::timed() const {
  for (const client::PushEvent& event : events)
    if (event.has_timed()) return event.timed();
  return v1::PushTimed::default_instance();
}

std::string CandidateResult::WhyNot() const {
  return absl::StrCat(verdict().status(), verdict().reason().empty() ? "" : ": ",
                      verdict().reason());
}

absl::StatusOr<CandidateResult> PushCandidate(const client::PushCall& call,
                                              client::Cancellation* cancellation,
                                              client::Client* client) {
  CandidateResult result;
  const auto take = [&result](const client::PushEvent& event) {
    result.events.push_back(event);
    if (event.has_compiled()) Progress::ShowInLast("candidate compiled");
    if (event.has_checked()) Progress::ShowInLast("candidate checked");
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(client->Push(call, {.event = take, .cancellation = cancellation}).status());
  return result;
}

}  // namespace warpcall::cli
