// Output of a subcommand on stdout, as JSON or as text for people, and its exit status.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "warpcall/client.h"

namespace warpcall::cli {

// Everything that goes to stdout goes through these, so that FinishOutput knows what became of it.
// Text for people, in which nothing but Emphasised's codes makes a terminal do anything.
void PrintText(absl::string_view text);
// For programs, byte for byte.
void PrintData(absl::string_view bytes);
// Indented, with a newline. In ASCII, so that a terminal obeys nothing in it: other characters are
// written as \uXXXX. Bytes that are not UTF-8 are replaced.
void PrintJson(const nlohmann::json& value);

// The value, or null where nothing is known: for what is not above 0, and for an empty text.
nlohmann::json OrNull(int64_t value);
nlohmann::json OrNull(double value);
nlohmann::json OrNull(const std::string& text);
nlohmann::json ToJson(const client::AttributeValue& value);
nlohmann::json ToJson(const client::Timing& timing);
nlohmann::json ToJson(const client::LaunchInfo& launch);
// {"code": "UNAVAILABLE", "message": "...", "retryable": true, "retry_after_ms": 200,
// "request_id": null}: whether the same call may succeed later, and by which id the server's log
// has a request that gave none; null where the server does not say.
nlohmann::json ToJson(const absl::Status& status);
// All fields by their names in the protocol, those that have their default values too. No maps.
nlohmann::json ToJson(const google::protobuf::Message& message);
// Reads what ToJson wrote: null is a field's default value, and members that are no fields are left
// out. INVALID_ARGUMENT names the field whose value is of another type.
absl::Status FromJson(const nlohmann::json& value, google::protobuf::Message* message);

// Errors are printed as JSON from now on, on one line of stderr:
// {"error": {...}}, a status as ToJson writes it and "exit_status".
void PrintErrorsAsJson();

// A line for people on stderr, which is no part of what was asked for: "warpcall: TEXT".
void PrintNote(absl::string_view text);
// A note on what is going on. On a terminal it takes the place of the previous one, and the next
// note or error the place of that; elsewhere it is a note.
void PrintStatus(absl::string_view text);
// Takes the last such line off the terminal.
void EndStatus();
// Returns true if stderr is a terminal.
bool StatusIsRewritten();

// Lines for people on stderr, to copy from, after an error: the heading, then `text` as it is.
void PrintExample(absl::string_view heading, absl::string_view text);

// Prints an error as Refused and UsageError do (command.h), and returns `exit_status`.
int Fail(const absl::Status& status, int exit_status);
// Like Fail, for an error that the text output already shows in a table or a sentence: prints it
// only if errors are JSON.
int FailShown(const absl::Status& status, int exit_status);

// Opens stand-ins for stdin, stdout and stderr if they are closed, so that a file opened later
// can't become one of them. Printing then fails as it does on a closed stream.
void HoldClosedStreams();

// Flushes everything printed so far.
void FlushOutput();

// Flushes stdout. If anything printed could not be written, reports the cause of the first failure
// and returns kExitRefused in place of kExitOk.
int FinishOutput(int exit_status);

// Fewest digits that read back as the same number; "nan", "inf" and "-inf" if not finite.
std::string ExactNumber(double value);
// A JSON value as a field: empty of null, a list's items apart by "; ", numbers exact.
std::string CsvField(const nlohmann::json& value);
// With its newline; fields are shown as Printable, and quoted where they must be.
std::string CsvLine(const std::vector<std::string>& fields);

}  // namespace warpcall::cli
