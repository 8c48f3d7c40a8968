// NVIDIA's compiler of CUDA C++ at run time (NVRTC), opened where it is there. It needs no GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/compiled/cuda_code.h"

namespace warpcall::compiled {

// Declared here, and not by nvrtc.h, so that builds without CUDA have it too.
struct NvrtcApi {
  using Result = int;
  using Program = struct OpaqueProgram*;

  // NOLINTBEGIN(readability-identifier-naming)
  Result (*Version)(int* major, int* minor);
  Result (*GetNumSupportedArchs)(int* count);
  Result (*GetSupportedArchs)(int* architectures);
  Result (*CreateProgram)(Program*, const char* source, const char* name, int headers,
                          const char* const* contents, const char* const* names);
  Result (*DestroyProgram)(Program*);
  Result (*CompileProgram)(Program, int count, const char* const* options);
  Result (*GetCUBINSize)(Program, size_t* bytes);
  Result (*GetCUBIN)(Program, char* cubin);
  Result (*GetPTXSize)(Program, size_t* bytes);
  Result (*GetPTX)(Program, char* ptx);
  Result (*AddNameExpression)(Program, const char* expression);
  Result (*GetLoweredName)(Program, const char* expression, const char** name);
  Result (*GetProgramLogSize)(Program, size_t* bytes);
  Result (*GetProgramLog)(Program, char* log);
  const char* (*GetErrorString)(Result);
  // NOLINTEND(readability-identifier-naming)
};

// The option by which NVRTC compiles programs on which it dies otherwise. Versions before 12.8 do
// not know it.
inline constexpr char kCarefulNvrtc[] = "--Ofast-compile=min";

// Returns the value of `--gpu-architecture` for a device's compute capability, 90 for 9.0: the
// target of that device alone with all of its instructions, if one exists: "sm_90a".
std::string TargetName(int architecture);

// Thread-safe.
class Nvrtc {
 public:
  // The log may be longer; its first errors are the most useful.
  static constexpr size_t kLogBytesMax = 60 << 10;

  // Opens the first of `files` that exists, and that file's own libraries. UNIMPLEMENTED names the
  // missing file and the reason. REQUIRES: `files` is not empty.
  static absl::StatusOr<Nvrtc> Open(absl::Span<const char* const> files);

  // "13.0"
  const std::string& version() const { return version_; }

  // TargetName of a capability that this version knows; else UNIMPLEMENTED.
  absl::StatusOr<std::string> TargetOf(int architecture) const;
  absl::Status CheckTarget(int architecture) const;

  // INTERNAL when the source is wrong, a CompileError whose message is the log. UNIMPLEMENTED when
  // the compiler can't do what the options want; RESOURCE_EXHAUSTED when it ran out of memory. Cuts
  // logs to kLogBytesMax.
  absl::StatusOr<CudaCode> Compile(const CudaSource& source) const;

 private:
  Nvrtc() = default;
  absl::Status Resolve(const char* file);
  absl::Status OpenBuiltins() const;
  absl::Status AskArchitectures();
  absl::Status ToStatus(NvrtcApi::Result result, absl::string_view what) const;
  std::string LogOf(NvrtcApi::Program program) const;
  absl::StatusOr<CudaCode> CodeOf(NvrtcApi::Program program, const CudaSource& source) const;

  NvrtcApi api_ = {};
  std::string version_;
  std::vector<int> architectures_;  // that it compiles for
};

// The newest version that is known to work, opened once per process. Thread-safe.
absl::StatusOr<const Nvrtc*> LoadNvrtc();
// Compiles with it; LoadNvrtc's error where there is none.
absl::StatusOr<CudaCode> CompileByNvrtc(const CudaSource& source);

// Compiles with Nvrtc::Compile's contract.
using CompileFunction = std::function<absl::StatusOr<CudaCode>(const CudaSource&)>;
// Makes later Compilers compile by `function`, in another process for example. Earlier ones, and
// those made after null, compile by NVRTC in this process. Not thread-safe.
void SetCompileFunction(CompileFunction function);
const CompileFunction& GetCompileFunction();

}  // namespace warpcall::compiled
