#include "kernels/compiled/compile_processes.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/types/optional.h"
#include "kernels/compiled/program.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

// More than any program or cubin has.
constexpr uint64_t kBytesMax = uint64_t{1} << 30;
constexpr uint64_t kTextsMax = 64;

CompileProcesses* g_processes = nullptr;

bool SendAll(int socket, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int socket, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(socket, at, bytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    at += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

// A message is a number of texts, and the length of each before it.
bool SendTexts(int socket, const std::vector<std::string>& texts) {
  const uint64_t count = texts.size();
  bool sent = SendAll(socket, &count, sizeof(count));
  for (const std::string& text : texts) {
    const uint64_t bytes = text.size();
    sent = sent && SendAll(socket, &bytes, sizeof(bytes)) && SendAll(socket, text.data(), bytes);
  }
  return sent;
}

// Nothing when the other end is gone or sends nonsense.
absl::optional<std::vector<std::string>> ReceiveTexts(int socket) {
  uint64_t count = 0;
  if (!ReceiveAll(socket, &count, sizeof(count)) || count > kTextsMax) return absl::nullopt;
  std::vector<std::string> texts(count);
  for (std::string& text : texts) {
    uint64_t bytes = 0;
    if (!ReceiveAll(socket, &bytes, sizeof(bytes)) || bytes > kBytesMax) return absl::nullopt;
    text.resize(bytes);
    if (!ReceiveAll(socket, text.data(), bytes)) return absl::nullopt;
  }
  return texts;
}

// An answer: the status's code and whether it is a CompileError, its message, and the cubin.
std::vector<std::string> ToTexts(const absl::StatusOr<std::string>& cubin) {
  return {std::string(1, static_cast<char>(cubin.status().code())),
          std::string(1, static_cast<char>(IsCompileError(cubin.status()))),
          std::string(cubin.status().message()), cubin.ok() ? *cubin : ""};
}

absl::StatusOr<std::string> FromTexts(std::vector<std::string> texts) {
  const auto code = static_cast<absl::StatusCode>(texts[0][0]);
  if (code == absl::StatusCode::kOk) return std::move(texts[3]);
  absl::Status status(code, texts[2]);
  return texts[1][0] != 0 ? AsCompileError(std::move(status)) : status;
}

absl::optional<absl::StatusOr<std::string>> Ask(int socket,
                                                const std::vector<std::string>& question) {
  if (!SendTexts(socket, question)) return absl::nullopt;
  absl::optional<std::vector<std::string>> answer = ReceiveTexts(socket);
  if (!answer.has_value() || answer->size() != 4 || (*answer)[0].size() != 1 ||
      (*answer)[1].size() != 1)
    return absl::nullopt;
  return FromTexts(*std::move(answer));
}

}  // namespace

CompileProcesses::~CompileProcesses() {
  absl::MutexLock lock(&mutex_);
  for (const int socket : idle_) close(socket);
}

absl::StatusOr<absl::optional<absl::StatusOr<std::string>>> CompileProcesses::CompileOnce(
    const std::vector<std::string>& question) {
  for (bool is_new = false; !is_new;) {
    int socket = -1;
    {
      absl::MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        socket = idle_.back();
        idle_.pop_back();
      }
    }
    is_new = socket < 0;
    if (is_new) {
      ASSIGN_OR_RETURN(socket, start_());
    }
    absl::optional<absl::StatusOr<std::string>> answer = Ask(socket, question);
    if (answer.has_value()) {
      absl::MutexLock lock(&mutex_);
      idle_.push_back(socket);
      return answer;
    }
    // One that was idle may have been ended before: another is asked, at last a new one.
    close(socket);
  }
  return absl::optional<absl::StatusOr<std::string>>();
}

absl::StatusOr<std::string> CompileProcesses::Compile(const std::string& source,
                                                      absl::Span<const std::string> options) {
  std::vector<std::string> question(options.begin(), options.end());
  question.push_back(source);
  absl::optional<absl::StatusOr<std::string>> answer;
  ASSIGN_OR_RETURN(answer, CompileOnce(question));
  if (answer.has_value()) return *std::move(answer);
  if (!careful_.empty()) {
    question.insert(question.begin(), careful_);
    ASSIGN_OR_RETURN(answer, CompileOnce(question));
    if (answer.has_value() && answer->ok()) return *std::move(answer);
  }
  return AsCompileError(absl::InternalError(
      "the compiler's process ended while it compiled this program: a defect of the compiler"));
}

void ServeCompilations(int socket, const CompileFunction& compile) {
  while (absl::optional<std::vector<std::string>> question = ReceiveTexts(socket)) {
    if (question->empty()) return;
    const std::string source = std::move(question->back());
    question->pop_back();
    if (!SendTexts(socket, ToTexts(compile(source, *question)))) return;
  }
}

void SetCompileProcesses(CompileProcesses* processes) { g_processes = processes; }
CompileProcesses* GetCompileProcesses() { return g_processes; }

}  // namespace warpcall::compiled
