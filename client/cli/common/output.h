// What a subcommand prints to stdout: a value as JSON, or text for people; and how it ends.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"

namespace warpcall::cli {

// Everything that goes to stdout goes through these, so that FinishOutput knows what became of it.
// Text for people, in which nothing but Emphasised's codes makes a terminal do anything.
void PrintText(absl::string_view text);
// For programs, byte for byte.
void PrintData(absl::string_view bytes);
// Indented, with a newline. In ASCII, so that a terminal obeys nothing in it: other characters are
// written as \uXXXX. Bytes that are not UTF-8 are replaced.
void PrintJson(const nlohmann::json& value);

nlohmann::json ToJson(const client::AttributeValue& value);
nlohmann::json ToJson(const client::Timing& timing);
nlohmann::json ToJson(const client::LaunchInfo& launch);
// All fields by their names in the protocol, those that have their default values too. No maps.
nlohmann::json ToJson(const google::protobuf::Message& message);
// Reads what ToJson wrote: null is a field's default value, and members that are no fields are left
// out. INVALID_ARGUMENT names the field whose value is of another type.
absl::Status FromJson(const nlohmann::json& value, google::protobuf::Message* message);

// Errors are printed as JSON from now on, on one line of stderr:
// {"error": {"code": "NOT_FOUND", "message": "...", "exit_status": 1}}.
void PrintErrorsAsJson();

// A line for people on stderr, which is no part of what was asked for: "warpcall: TEXT".
void PrintNote(absl::string_view text);

// Prints an error as Refused and UsageError do (command.h), and returns `exit_status`.
int Fail(const absl::Status& status, int exit_status);
// The same of what people have been told by a table or a sentence: only who reads errors as JSON is
// told once more.
int FailTold(const absl::Status& status, int exit_status);

// Takes the place of stdin, stdout and stderr where they are closed, so that no file that is opened
// later becomes one of them. What is printed then fails as it does on what is closed.
void HoldClosedStreams();

// What was printed so far gets to where it goes.
void FlushOutput();

// Flushes stdout. When something that was printed did not get there it says so, with the cause of
// the first failure, and gives kExitRefused in place of kExitOk.
int FinishOutput(int exit_status);

// The fewest digits that read back as the same number; "nan", "inf" and "-inf" for what is none.
std::string ExactNumber(double value);
// A JSON value as a field: empty of null, a list's items apart by "; ", numbers exact.
std::string CsvField(const nlohmann::json& value);
// With its newline; fields are shown as Printable, and quoted where they must be.
std::string CsvLine(const std::vector<std::string>& fields);

}  // namespace warpcall::cli
