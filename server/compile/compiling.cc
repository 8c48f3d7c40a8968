#include "server/compile/compiling.h"

#include "kernels/compiled/program.h"
#include "proto/common/status_macros.h"
#include "server/process/answer.h"

namespace warpcall {
namespace {

using compiled::CudaCode;
using compiled::CudaSource;

// More than any program or cubin has.
constexpr size_t kBytesMax = size_t{1} << 30;

}  // namespace

std::unique_ptr<process::Child> CompileProcesses::FindIdle() {
  absl::MutexLock lock(&mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<process::Child> idle = std::move(idle_.back());
  idle_.pop_back();
  return idle;
}

absl::StatusOr<process::Answer> CompileProcesses::CompileOnce(const CudaSource& source) {
  const std::string request = ToBytes(source);
  for (bool is_new = false; !is_new;) {
    std::unique_ptr<process::Child> child = FindIdle();
    is_new = child == nullptr;
    if (is_new) {
      ASSIGN_OR_RETURN(child, start_());
    }
    const process::Channel& channel = child->channel();
    // One that was idle may have ended before: the next is asked, at last a new one.
    if (!channel.Send("", request).ok()) continue;
    absl::StatusOr<process::Answer> answer = process::ReceiveAnswer(channel, kBytesMax);
    if (!answer.ok()) continue;
    absl::MutexLock lock(&mutex_);
    idle_.push_back(std::move(child));
    return answer;
  }
  return absl::UnavailableError(
      "the compiler's process ended while it compiled this program: a defect of the compiler");
}

absl::StatusOr<CudaCode> CompileProcesses::Compile(const CudaSource& source) {
  absl::StatusOr<process::Answer> answer = CompileOnce(source);
  if (absl::IsUnavailable(answer.status()) && !careful_.empty()) {
    CudaSource careful = source;
    careful.options.insert(careful.options.begin(), careful_);
    absl::StatusOr<process::Answer> again = CompileOnce(careful);
    if (!again.ok() || again->result.ok()) answer = std::move(again);
  }
  if (absl::IsUnavailable(answer.status()))
    return compiled::AsCompileError(absl::InternalError(answer.status().message()));
  if (!answer.ok()) return std::move(answer).status();
  if (!answer->result.ok()) return std::move(answer->result).status();
  return compiled::ParseCudaCode(*answer->result);
}

absl::StatusOr<std::string> AnswerCompilation(const process::Message& request,
                                              const compiled::CompileFunction& compile) {
  ASSIGN_OR_RETURN(const CudaSource source, compiled::ParseCudaSource(request.body));
  ASSIGN_OR_RETURN(const CudaCode code, compile(source));
  return ToBytes(code);
}

absl::Status ServeCompilations(const process::Channel& channel,
                               const compiled::CompileFunction& compile) {
  return process::ServeRequests(channel, [&](const process::Message& request) {
    return AnswerCompilation(request, compile);
  });
}

void CompileInOwnProcesses() {
  static CompileProcesses& processes = *new CompileProcesses(
      [] { return process::Child::Start({.role = process::Role::kCompiler}); },
      compiled::kCarefulNvrtc);
  compiled::SetCompileFunction([](const CudaSource& source) { return processes.Compile(source); });
}

}  // namespace warpcall
