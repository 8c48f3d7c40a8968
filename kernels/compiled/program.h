// The source of code compiled at run time, and its machine code.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace warpcall::compiled {

// CUDA C++ that includes nothing. Nothing of a client's text is in it.
struct Program {
  std::string source;
  std::string entry;  // an extern "C" kernel

  bool operator==(const Program& other) const = default;

  template <typename Hash>
  friend Hash AbslHashValue(Hash state, const Program& program) {
    return Hash::combine(std::move(state), program.source, program.entry);
  }
};

// The compiler's refusal of a source, as it is known wherever its status gets to.
absl::Status AsCompileError(absl::Status status);
bool IsCompileError(const absl::Status& status);
// A compiler's log without its last newline, cut to fit.
std::string ClippedLog(absl::string_view log, size_t bytes_max);

// A program's machine code. Derived classes add the device's handles.
class Cubin {
 public:
  Cubin(Program program, std::string image)
      : program_(std::move(program)), image_(std::move(image)) {}
  virtual ~Cubin() = default;
  Cubin(const Cubin&) = delete;
  Cubin& operator=(const Cubin&) = delete;

  const Program& program() const { return program_; }
  const std::string& source() const { return program_.source; }
  const std::string& entry() const { return program_.entry; }
  // The file as the compiler wrote it, an ELF.
  const std::string& image() const { return image_; }

 private:
  const Program program_;
  const std::string image_;
};
using CubinPtr = std::shared_ptr<const Cubin>;

}  // namespace warpcall::compiled
