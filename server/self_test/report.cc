#include "server/self_test/report.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace warpcall::self_test {
namespace {

bool IsSound(const Report& report) {
  const bool with_reason = report.text[0] != '\0';
  switch (report.kind) {
    case Report::Kind::kStarted:
    case Report::Kind::kCrashed:
      return true;
    case Report::Kind::kPassed:
      return report.ns >= 0;
    case Report::Kind::kFailed:
      return report.ns >= 0 && with_reason;
    case Report::Kind::kNoDevice:
      return with_reason;
  }
  return false;  // a kind that there is not
}

}  // namespace

void SetText(absl::string_view text, Report* report) {
  const size_t bytes = std::min(text.size(), sizeof(report->text) - 1);
  text.copy(report->text, bytes);
  report->text[bytes] = '\0';
}

absl::Status Send(int socket, const Report& report) {
  while (send(socket, &report, sizeof(report), MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return absl::UnavailableError("the server is gone");
  return absl::OkStatus();
}

absl::StatusOr<Report> Receive(int socket) {
  Report report;
  ssize_t got;
  while ((got = recv(socket, &report, sizeof(report), 0)) < 0 && errno == EINTR) {
  }
  if (got != static_cast<ssize_t>(sizeof(report)))
    return absl::UnavailableError("its process ended");
  report.text[sizeof(report.text) - 1] = '\0';
  if (!IsSound(report)) return absl::UnavailableError("its process sent nonsense");
  return report;
}

}  // namespace warpcall::self_test
