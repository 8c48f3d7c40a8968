// Options of the command line, over CLI11. Only two files include CLI11: each that does takes four
// seconds more to compile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace warpcall::cli {

// File name that stands for stdin (inputs) or stdout (outputs).
inline constexpr char kStandardStream[] = "-";

// One option, described further by calls that chain.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option Required() const;
  // Text that --help shows in place of a value.
  Option TypeName(const std::string& name) const;
  // --help shows the variable's value from before the command line is read.
  Option ShowDefault() const;
  // Reads the environment's `variable` when the command line does not give the option.
  Option FromEnvironment(const std::string& variable) const;
  Option OneOf(const std::vector<std::string>& values) const;
  // A number from `least` to `most`, never NaN.
  Option Between(double least, double most) const;
  // A type as ParseDataType takes it.
  Option IsDataType() const;
  // Takes all remaining values. For options without a name.
  Option TakesAll() const;
  // Several values may stand with `separator` between them.
  Option SplitAt(char separator) const;
  Option Excludes(const Option& other) const;
  Option Needs(const Option& other) const;

 private:
  CLI::Option* option_;
};

// The options and unnamed values of warpcall or of a subcommand. Each is read into a variable,
// whose address must not change.
class Arguments {
 public:
  explicit Arguments(CLI::App* app) : app_(app) {}

  Option Add(const std::string& name, std::string* value, const std::string& help) const;
  Option Add(const std::string& name, int* value, const std::string& help) const;
  Option Add(const std::string& name, int64_t* value, const std::string& help) const;
  Option Add(const std::string& name, uint64_t* value, const std::string& help) const;
  Option Add(const std::string& name, double* value, const std::string& help) const;
  // Given once per value; `values` gets them in order.
  Option AddRepeated(const std::string& name, std::vector<std::string>* values,
                     const std::string& help) const;
  Option AddFlag(const std::string& name, bool* value, const std::string& help) const;
  Arguments AddSubcommand(const std::string& name, const std::string& help) const;
  // Sets the text at the end of --help.
  void SetFooter(const std::string& text) const;

  // True if the command line named this subcommand.
  bool named() const;

 private:
  CLI::App* app_;
};

// Model of the command lines that a program accepts, for messages and for shell completion.
struct OptionModel {
  std::string name;  // "--type"; for an unnamed value, its name in --help
  bool named = true;
  bool takes_value = false;
  std::vector<std::string> values = {};  // allowed values; empty: any
};
struct CommandModel {
  std::string name;
  std::vector<OptionModel> options = {};
};
struct ProgramModel {
  std::vector<OptionModel> options = {};  // accepted before and after every command
  std::vector<CommandModel> commands = {};
};

// A program's command line: one subcommand, before or after which its own options may stand.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& help, const std::string& version);
  ~CommandLine();

  Arguments arguments() const { return Arguments(app_.get()); }
  // Returns false if there is nothing to run: --help or --version was printed (*status 0), or an
  // error in one line (*status 2).
  bool Parse(int argc, char** argv, int* status);

  // Parses the program's own options alone, without a subcommand. Returns false, and prints
  // nothing, if they are wrong.
  bool ParseOptions(std::vector<std::string> words);

  ProgramModel Model() const;
  // Returns the --help text of the program or of one subcommand. NOT_FOUND lists the subcommands.
  absl::StatusOr<std::string> Help(const std::string& command) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

// --deadline SECONDS: time limit for all calls of a command together, retries included (TimeLeft).
// In bench and tune it applies to each point, in load to each request.
class TimeoutOption {
 public:
  // This object must not move afterwards: `arguments` write into it.
  explicit TimeoutOption(const Arguments& arguments, double default_seconds = kDefaultSeconds)
      : seconds_(default_seconds) {
    arguments.Add("--deadline", &seconds_, "Give up after this many seconds, retries included")
        .Between(kSecondsMin, kSecondsMax)
        .ShowDefault();
  }
  TimeoutOption(const TimeoutOption&) = delete;
  TimeoutOption& operator=(const TimeoutOption&) = delete;

  absl::Duration duration() const { return absl::Seconds(seconds_); }

 private:
  // Long enough for gigabytes over one connection of about 1 GB/s.
  static constexpr double kDefaultSeconds = 60;
  static constexpr double kSecondsMin = 0.001;
  static constexpr double kSecondsMax = 86400;

  double seconds_;
};

// Reads --timeout: seconds, or a duration as 500ms or 2m, 1 ms to 24 h; zero for "".
// INVALID_ARGUMENT for other text.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text);

// Reads a tensor's time to live, a duration over zero as 90s or 1h30m. INVALID_ARGUMENT, which
// begins with `what`, for other text.
absl::StatusOr<absl::Duration> ParseTtl(const std::string& what, const std::string& text);

// --ttl DURATION, as 90s, 10m or 1h30m: how long a tensor stays on the server unused.
class TtlOption {
 public:
  // This object must not move afterwards: `arguments` write into it.
  Option Add(const Arguments& arguments, const std::string& help) {
    return arguments.Add("--ttl", &text_, help + ", as 90s or 1h; default: the server's")
        .TypeName("DURATION");
  }
  // Zero: none was given. INVALID_ARGUMENT unless it is a duration over zero.
  absl::StatusOr<absl::Duration> duration() const;

 private:
  std::string text_;
};

// Remaining deadline. Only time spent waiting for the server counts, not the command's own work,
// such as making inputs. For one thread.
class TimeLeft {
 public:
  explicit TimeLeft(absl::Duration whole) : left_(whole) {}

  // Timeout of the next call. Never zero, which calls take for no limit: with no time left, the
  // next call ends at once.
  absl::Duration left() const { return std::max(left_, absl::Nanoseconds(1)); }

  // Returns the result of `call`, which is called with left() and must keep to that timeout.
  template <typename Call>
  auto Spend(Call&& call) {
    const absl::Time start = absl::Now();
    auto answer = std::forward<Call>(call)(left());
    left_ -= absl::Now() - start;
    return answer;
  }

 private:
  absl::Duration left_;
};

}  // namespace warpcall::cli
