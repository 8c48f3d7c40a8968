#include "server/compiling.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/compile_processes.h"
#include "kernels/compiled/nvrtc.h"
#include "proto/common/status_macros.h"
#include "server/spawn.h"

namespace warpcall {
namespace {

absl::StatusOr<int> StartProcess() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptors for a compiler's process: ", strerror(errno)));
  const int other = MoveBeyondInherited(pair[1]);
  const absl::Status started =
      other < 0 ? absl::ResourceExhaustedError("no descriptors for a compiler's process")
                : SpawnSelf({"--compile_programs"}, {other}).status();
  if (other >= 0) close(other);
  if (started.ok()) return pair[0];
  close(pair[0]);
  return started;
}

}  // namespace

void CompileInOwnProcesses() {
  compiled::SetCompileProcesses(
      new compiled::CompileProcesses(StartProcess, compiled::kCarefulNvrtc));
}

int CompilePrograms() {
  CloseUnexpectedDescriptors();
  compiled::ServeCompilations(
      kInheritedFirst,
      [](const std::string& source,
         absl::Span<const std::string> options) -> absl::StatusOr<std::string> {
        const compiled::Nvrtc* nvrtc;
        ASSIGN_OR_RETURN(nvrtc, compiled::LoadNvrtc());
        return nvrtc->Compile(source, options);
      });
  return 0;
}

}  // namespace warpcall
