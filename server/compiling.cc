#include "server/compiling.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/compiled/program.h"
#include "proto/common/status_macros.h"
#include "server/process/answer.h"

namespace warpcall {
namespace {

// More than any program or cubin has.
constexpr size_t kBytesMax = size_t{1} << 30;
// Between two options in a request's head.
constexpr char kBetween = '\n';

}  // namespace

std::unique_ptr<process::Child> CompileProcesses::FindIdle() {
  absl::MutexLock lock(&mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<process::Child> idle = std::move(idle_.back());
  idle_.pop_back();
  return idle;
}

absl::StatusOr<process::Answer> CompileProcesses::CompileOnce(
    const std::string& source, absl::Span<const std::string> options) {
  for (bool is_new = false; !is_new;) {
    std::unique_ptr<process::Child> child = FindIdle();
    is_new = child == nullptr;
    if (is_new) {
      ASSIGN_OR_RETURN(child, start_());
    }
    const process::Channel& channel = child->channel();
    // One that was idle may have ended before: the next is asked, at last a new one.
    if (!channel.Send(absl::StrJoin(options, std::string(1, kBetween)), source).ok()) continue;
    absl::StatusOr<process::Answer> answer = process::ReceiveAnswer(channel, kBytesMax);
    if (!answer.ok()) continue;
    absl::MutexLock lock(&mutex_);
    idle_.push_back(std::move(child));
    return answer;
  }
  return absl::UnavailableError(
      "the compiler's process ended while it compiled this program: a defect of the compiler");
}

absl::StatusOr<std::string> CompileProcesses::Compile(const std::string& source,
                                                      absl::Span<const std::string> options) {
  absl::StatusOr<process::Answer> answer = CompileOnce(source, options);
  if (absl::IsUnavailable(answer.status()) && !careful_.empty()) {
    std::vector<std::string> careful = {careful_};
    careful.insert(careful.end(), options.begin(), options.end());
    absl::StatusOr<process::Answer> again = CompileOnce(source, careful);
    if (!again.ok() || again->result.ok()) answer = std::move(again);
  }
  if (absl::IsUnavailable(answer.status()))
    return compiled::AsCompileError(absl::InternalError(answer.status().message()));
  if (!answer.ok()) return std::move(answer).status();
  return std::move(answer->result);
}

absl::Status ServeCompilations(const process::Channel& channel,
                               const compiled::CompileFunction& compile) {
  return process::ServeRequests(channel, [&](const process::Message& request) {
    const std::vector<std::string> options =
        absl::StrSplit(request.head, kBetween, absl::SkipEmpty());
    return compile(request.body, options);
  });
}

void CompileInOwnProcesses() {
  static CompileProcesses& processes = *new CompileProcesses(
      [] { return process::Child::Start({.role = process::Role::kCompiler}); },
      compiled::kCarefulNvrtc);
  compiled::SetCompileFunction(
      [](const std::string& source, absl::Span<const std::string> options) {
        return processes.Compile(source, options);
      });
}

int CompilePrograms(const process::Channel& parent) {
  const absl::Status served =
      ServeCompilations(parent,
                        [](const std::string& source,
                           absl::Span<const std::string> options) -> absl::StatusOr<std::string> {
                          const compiled::Nvrtc* nvrtc;
                          ASSIGN_OR_RETURN(nvrtc, compiled::LoadNvrtc());
                          return nvrtc->Compile(source, options);
                        });
  return served.ok() ? 0 : 1;
}

}  // namespace warpcall
