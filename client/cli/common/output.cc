#include "client/cli/common/output.h"

#include <fcntl.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/cli/common/command.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

// `index` is the place in a repeated field.
json ToJson(const google::protobuf::Message& message,
            const google::protobuf::FieldDescriptor* field, int index) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& get = *message.GetReflection();
  const bool is_list = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return is_list ? get.GetRepeatedBool(message, field, index) : get.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return is_list ? get.GetRepeatedInt32(message, field, index) : get.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return is_list ? get.GetRepeatedInt64(message, field, index) : get.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return is_list ? get.GetRepeatedUInt64(message, field, index) : get.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return is_list ? get.GetRepeatedDouble(message, field, index) : get.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return is_list ? get.GetRepeatedString(message, field, index) : get.GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return cli::ToJson(is_list ? get.GetRepeatedMessage(message, field, index)
                                 : get.GetMessage(message, field));
    default:  // no message that is printed has fields of other types
      return {};
  }
}

// Set once per process, by main, before anything can fail.
bool errors_are_json = false;
// errno of the first failed write to stdout; 0: none. Later writes and the final flush may fail
// otherwise or succeed.
int output_error = 0;

absl::Mutex status_mutex(absl::kConstInit);
size_t status_columns ABSL_GUARDED_BY(status_mutex) = 0;  // of the status that the terminal shows

// By spaces: no codes for a terminal without colours.
void EraseStatus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(status_mutex) {
  if (status_columns == 0) return;
  std::fprintf(stderr, "\r%s\r", std::string(status_columns, ' ').c_str());
  status_columns = 0;
}

void NoteOutputError(bool failed) {
  if (failed && output_error == 0) output_error = errno == 0 ? EIO : errno;
}

// Returns `text` as one line, or broken at words for a narrower terminal.
std::string FittedToStderr(const std::string& text) {
  if (isatty(STDERR_FILENO) == 0) return text;
  return absl::StrJoin(WrapText(text, FindScreen(STDERR_FILENO).columns), "\n");
}

// When to try again, and where to look for more than the message says.
std::string WhatNext(const absl::Status& status) {
  std::string text;
  const int64_t pause_ms = client::RetryPushbackMs(status).value_or(0);
  if (pause_ms > 0)
    absl::StrAppend(&text, "; try again in ", HumanTime(1e6 * static_cast<double>(pause_ms)));
  const std::string request_id = client::RequestIdOf(status);
  const bool says_all =
      absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsUnimplemented(status);
  if (!request_id.empty() && !says_all)
    absl::StrAppend(&text, "; the log has it as request ", request_id);
  return text;
}

std::string ErrorText(const absl::Status& status, int exit_status) {
  const std::string code = absl::StatusCodeToString(status.code());
  if (!errors_are_json) {
    const std::string text =
        FittedToStderr(absl::StrCat(code, ": ", Printable(status.message()), WhatNext(status)));
    return absl::StrCat(Emphasised(code + ":", Emphasis::kError, FindScreen(STDERR_FILENO)),
                        text.substr(code.size() + 1), "\n");
  }
  json error = cli::ToJson(status);
  error["exit_status"] = exit_status;
  return json({{"error", error}})
             .dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace) +
         "\n";
}

std::string Quoted(absl::string_view field) {
  if (field.find_first_of(",\"") == absl::string_view::npos) return std::string(field);
  return absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
}

}  // namespace

void PrintText(absl::string_view text) { PrintData(PrintableLines(text, OutScreen())); }

void PrintData(absl::string_view bytes) {
  errno = 0;
  NoteOutputError(std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size());
}

void PrintJson(const json& value) {
  constexpr int kIndent = 2;
  PrintData(value.dump(kIndent, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace) + "\n");
}

json OrNull(int64_t value) { return value > 0 ? json(value) : json(); }
json OrNull(double value) { return value > 0 ? json(value) : json(); }
json OrNull(const std::string& text) { return text.empty() ? json() : json(text); }

json ToJson(const client::AttributeValue& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

json ToJson(const client::Timing& timing) {
  return {{"queue_ns", timing.queue_ns}, {"copy_in_ns", timing.copy_in_ns},
          {"h2d_ns", timing.h2d_ns},     {"kernel_ns", timing.kernel_ns},
          {"d2h_ns", timing.d2h_ns},     {"total_ns", timing.total_ns}};
}

json ToJson(const client::LaunchInfo& launch) {
  return {{"bytes_moved", launch.bytes_moved},
          {"flops", launch.flops},
          {"theoretical_occupancy", launch.theoretical_occupancy},
          {"waves", launch.waves},
          {"gpu_kernels", launch.gpu_kernels},
          {"variant", launch.variant}};
}

json ToJson(const google::protobuf::Message& message) {
  json object = json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type.field(i);
    json& value = object[field->name()];
    if (!field->is_repeated()) {
      value = ToJson(message, field, 0);
      continue;
    }
    value = json::array();
    for (int item = 0; item < message.GetReflection()->FieldSize(message, field); ++item)
      value.push_back(ToJson(message, field, item));
  }
  return object;
}

absl::Status FromJson(const json& value, google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(
      value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace), message, options);
  return status.ok() ? absl::OkStatus() : absl::InvalidArgumentError(std::string(status.message()));
}

json ToJson(const absl::Status& status) {
  const std::string request_id = client::RequestIdOf(status);
  const std::optional<int64_t> pause_ms = client::RetryPushbackMs(status);
  const bool is_retryable = pause_ms.has_value() ? *pause_ms >= 0 : absl::IsUnavailable(status);
  return {{"code", absl::StatusCodeToString(status.code())},
          {"message", std::string(status.message())},
          {"retryable", is_retryable},
          {"retry_after_ms", is_retryable && pause_ms.has_value() ? json(*pause_ms) : json()},
          {"request_id", request_id.empty() ? json() : json(request_id)}};
}

void PrintErrorsAsJson() { errors_are_json = true; }

bool StatusIsRewritten() { return isatty(STDERR_FILENO) != 0; }

void PrintStatus(absl::string_view text) {
  if (!StatusIsRewritten()) return PrintNote(text);
  // The last column stays free: behind it some terminals begin a line.
  const std::string line =
      CutMiddle(absl::StrCat("warpcall: ", Printable(text)), FindScreen(STDERR_FILENO).columns - 1);
  absl::MutexLock lock(&status_mutex);
  EraseStatus();
  status_columns = Columns(line);
  std::fprintf(stderr, "%s", line.c_str());
}

void EndStatus() {
  absl::MutexLock lock(&status_mutex);
  EraseStatus();
}

void PrintNote(absl::string_view text) {
  EndStatus();
  const std::string line = FittedToStderr(absl::StrCat("warpcall: ", Printable(text)));
  std::fprintf(stderr, "%s\n", line.c_str());
}

void PrintExample(absl::string_view heading, absl::string_view text) {
  const std::string lines = absl::StrCat(heading, "\n", text);
  std::fputs(lines.c_str(), stderr);
}

void HoldClosedStreams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // Opened in the wrong direction, so that reads or writes still get EBADF.
    const int flags = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", flags) != descriptor) return;  // the lowest that is free, or none is
  }
}

int Fail(const absl::Status& status, int exit_status) {
  std::fputs(ErrorText(status, exit_status).c_str(), stderr);
  return exit_status;
}

int FailShown(const absl::Status& status, int exit_status) {
  return errors_are_json ? Fail(status, exit_status) : exit_status;
}

void FlushOutput() {
  errno = 0;
  NoteOutputError(std::fflush(stdout) != 0);
}

int FinishOutput(int exit_status) {
  FlushOutput();
  if (output_error == 0) return exit_status;
  // Whoever reads it has enough, as `head` has.
  if (output_error == EPIPE) return exit_status == kExitOk ? kExitRefused : exit_status;
  const absl::Status status = absl::ErrnoToStatus(output_error, "can't write to stdout");
  // The exit status reports the first error.
  const int refused = Refused(status);
  return exit_status == kExitOk ? refused : exit_status;
}

int Refused(const absl::Status& status) { return Fail(status, kExitRefused); }

int UsageError(const absl::Status& status) { return Fail(status, kExitUsage); }

std::string ExactNumber(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

std::string CsvField(const nlohmann::json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return ExactNumber(value.get<double>());
  if (!value.is_array()) return value.dump();
  return absl::StrJoin(value, "; ", [](std::string* out, const nlohmann::json& item) {
    absl::StrAppend(out, CsvField(item));
  });
}

std::string CsvLine(const std::vector<std::string>& fields) {
  const auto append = [](std::string* out, const std::string& field) {
    absl::StrAppend(out, Quoted(Printable(field)));
  };
  return absl::StrCat(absl::StrJoin(fields, ",", append), "\n");
}

}  // namespace warpcall::cli
