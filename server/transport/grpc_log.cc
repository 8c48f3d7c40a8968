#include "server/transport/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <cstring>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/log/log.h"

namespace warpcall {
namespace {

constexpr int kLinesPerSecond = 5;

absl::Mutex mutex(absl::kConstInit);
int64_t second ABSL_GUARDED_BY(mutex) = 0;
int lines ABSL_GUARDED_BY(mutex) = 0;         // in that second
int64_t left_out ABSL_GUARDED_BY(mutex) = 0;  // since the last line

std::atomic<int64_t> certificates_refused{0};

// Returns true if a line may be written now, and the number left out before it.
bool Admit(int64_t* left_out_before) {
  const absl::MutexLock lock(&mutex);
  if (const int64_t now = absl::ToUnixSeconds(absl::Now()); now != second) {
    second = now;
    lines = 0;
  }
  if (lines == kLinesPerSecond) {
    ++left_out;
    return false;
  }
  ++lines;
  *left_out_before = left_out;
  left_out = 0;
  return true;
}

LogLevel LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return LogLevel::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  return LogLevel::kWarning;
}

// gRPC 1.51 reports a client's certificate that TLS refuses nowhere but in a line of its log, with
// OpenSSL's reason. Where the client refuses the server's certificate, the reason is an alert.
bool RefusesCertificate(absl::string_view text) {
  return absl::StartsWith(text, "Handshake failed") &&
         (absl::StrContains(text, "certificate verify failed") ||
          absl::StrContains(text, "peer did not return a certificate"));
}

void OnLine(gpr_log_func_args* line) {
  if (RefusesCertificate(line->message)) certificates_refused.fetch_add(1);
  int64_t left_out_before = 0;
  if (!Admit(&left_out_before)) return;
  const char* const slash = std::strrchr(line->file, '/');
  Log(LevelOf(line->severity), "grpc",
      {{"text", line->message},
       {"at", absl::StrCat(slash == nullptr ? line->file : slash + 1, ":", line->line)},
       {"left_out_before", left_out_before}});
}

}  // namespace

void TakeGrpcLog() { gpr_set_log_function(OnLine); }

int64_t ClientCertificatesRefused() { return certificates_refused.load(); }

}  // namespace warpcall
