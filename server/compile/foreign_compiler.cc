#include "server/compile/foreign_compiler.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/compiled/program.h"
#include "proto/common/human_figures.h"
#include "proto/common/status_macros.h"
#include "server/compile/compiling.h"
#include "server/process/answer.h"
#include "server/process/confinement.h"
#include "server/process/fatal_signals.h"

namespace warpcall {
namespace {

using compiled::CudaCode;
using compiled::CudaSource;
using compiled::Nvrtc;

constexpr size_t kAnswerBytesMax = size_t{256} << 20;
// More than any source has with its options.
constexpr size_t kRequestBytesMax = 2 * compiled::kForeignSourceBytesMax;

absl::Status Refused(absl::string_view why) {
  return compiled::AsCompileError(absl::InternalError(why));
}

// ---- This side

// Returns whether something can be read before the deadline.
bool AwaitAnswer(const process::Channel& channel, int64_t deadline_ns) {
  pollfd answer = {channel.socket(), POLLIN, 0};
  for (;;) {
    const int64_t left_ms = deadline_ns == kNoDeadline
                                ? -1
                                : std::max<int64_t>((deadline_ns - MonotonicNs()) / 1'000'000, 0);
    const int ready = poll(
        &answer, 1, static_cast<int>(std::min<int64_t>(left_ms, std::numeric_limits<int>::max())));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

bool IsKernelName(absl::string_view name) {
  return !name.empty() && absl::c_all_of(name, [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '$' || c == '.';
  });
}

// The process worked on a user's bytes, and may send any: checks what it says.
absl::StatusOr<CudaCode> Checked(absl::string_view bytes, const CudaSource& source) {
  ASSIGN_OR_RETURN(CudaCode code, compiled::ParseCudaCode(bytes));
  if (code.kernels.size() != source.entries.size() || !absl::c_all_of(code.kernels, IsKernelName))
    return absl::InternalError(absl::StrCat("the compiler's process named ", code.kernels.size(),
                                            " kernels for ", source.entries.size(), " entries"));
  code.log = compiled::CleanText(code.log, Nvrtc::kLogBytesMax);
  code.ptx = compiled::CleanText(code.ptx, code.ptx.size());
  return code;
}

absl::Status Checked(const absl::Status& status) {
  const std::string message = compiled::CleanText(status.message(), Nvrtc::kLogBytesMax);
  if (compiled::IsCompileError(status)) return Refused(message);
  // Deadlines are kept on this side.
  if (absl::IsDeadlineExceeded(status)) return absl::InternalError(message);
  return absl::Status(status.code(), message);
}

// ---- In the process

// The data of the signal handler; constant while it may run.
struct LastWords {
  const process::Channel* channel = nullptr;
  std::string out_of_time, out_of_memory, crashed;  // heads of answers
  size_t spare_bytes = 0;
};
LastWords last_words;

// Whoever ran out of memory asked for more than is left: a quarter of the limit stands for that.
bool HasMemory(size_t bytes) {
  void* const spare = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (spare == MAP_FAILED) return false;
  munmap(spare, bytes);
  return true;
}

void SayLastWords(int signal) {
  const std::string& words = signal == SIGXCPU                   ? last_words.out_of_time
                             : HasMemory(last_words.spare_bytes) ? last_words.crashed
                                                                 : last_words.out_of_memory;
  last_words.channel->TrySend(words, "");
  _exit(1);
}

void CatchSignals(const process::Channel& channel, const ForeignLimits& limits) {
  last_words.channel = &channel;
  last_words.out_of_time = process::AnswerHead(
      {Refused(absl::StrCat("compiling took more than ", limits.cpu_seconds, " s of CPU time"))});
  last_words.out_of_memory = process::AnswerHead({Refused(absl::StrCat(
      "compiling took more than ", limits.address_space_bytes >> 20, " MiB of memory"))});
  last_words.crashed = process::AnswerHead({Refused("the compiler crashed on this source")});
  last_words.spare_bytes = static_cast<size_t>(limits.address_space_bytes) / 4;
  process::CatchFatalSignals(SayLastWords);
  process::CatchSignal(SIGXCPU, SayLastWords);
}

// Ends the handler's right to send.
void IgnoreLimits() { signal(SIGXCPU, SIG_IGN); }

}  // namespace

absl::StatusOr<CudaCode> CompileForeign(const compiled::ForeignSource& foreign,
                                        const ForeignCompiler& compiler) {
  const absl::StatusOr<CudaSource> made = ToCudaSource(foreign, compiler.cuda_include);
  if (!made.ok())
    return compiled::WithMissingCompiler(made.status(), compiled::LoadNvrtc().status());
  const CudaSource& source = *made;
  const int64_t start_ns = MonotonicNs();
  std::unique_ptr<process::Child> child;
  ASSIGN_OR_RETURN(child, compiler.start != nullptr
                              ? compiler.start()
                              : process::Child::Start({.role = process::Role::kCompiler,
                                                       .foreign = true,
                                                       .cuda_include = compiler.cuda_include}));
  const process::Channel& channel = child->channel();
  if (!channel.Send("", ToBytes(source)).ok())
    return absl::InternalError("the compiler process exited before it received the source");
  if (!AwaitAnswer(channel, compiler.deadline_ns)) {
    child->Kill();
    return absl::DeadlineExceededError(absl::StrCat(
        "compiling was stopped after ", HumanTime(static_cast<double>(MonotonicNs() - start_ns))));
  }
  const absl::StatusOr<process::Answer> answer = process::ReceiveAnswer(channel, kAnswerBytesMax);
  if (absl::IsUnavailable(answer.status()))
    return Refused("the compiler's process ended on this source without a word");
  if (!answer.ok()) return Checked(answer.status());
  if (!answer->result.ok()) return Checked(answer->result.status());
  return Checked(*answer->result, source);
}

absl::Status ConfineCompiler(const process::RoleFlags& flags, const ForeignLimits& limits) {
  // Its libraries' files are out of reach afterwards. Whoever compiles finds the error again.
  compiled::LoadNvrtc().status().IgnoreError();
  process::Confinement confinement;
  if (flags.foreign) {
    confinement = {.address_space_bytes = limits.address_space_bytes,
                   .cpu_seconds = limits.cpu_seconds,
                   .silent = true};
    if (!flags.cuda_include.empty()) confinement.folders = {flags.cuda_include};
  }
  return process::Confine(confinement);
}

absl::Status ServeForeignCompilation(const process::Channel& channel, const absl::Status& confined,
                                     const compiled::CompileFunction& compile,
                                     const ForeignLimits& limits) {
  ASSIGN_OR_RETURN(const process::Message request, channel.Receive(kRequestBytesMax));
  if (!confined.ok())
    return process::SendAnswer(
        channel,
        {absl::Status(confined.code(),
                      absl::StrCat("pushed source can't be compiled here: ", confined.message()))});
  CatchSignals(channel, limits);
  const absl::StatusOr<std::string> answer = AnswerCompilation(
      request,
      [&compile](const CudaSource& source) { return compiled::CompileAndCheck(compile, source); });
  IgnoreLimits();
  return process::SendAnswer(channel, {answer});
}

}  // namespace warpcall
