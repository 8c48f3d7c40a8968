#include "kernels/compiled/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/compiled/program.h"
#include "kernels/cuda/shared_library.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

using cuda::SharedLibrary;

// Searches by the loader's own rules first, then where NVIDIA's packages install it. Drivers accept
// the output of the previous version.
constexpr const char* kFiles[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                  "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12"};
constexpr char kNeededBy[] =
    "pushes and the implementations of family compiled need it; PyPI's nvidia-cuda-nvrtc has it";

// nvrtcResult.
constexpr NvrtcApi::Result kSuccess = 0;
constexpr NvrtcApi::Result kOutOfMemory = 1;
constexpr NvrtcApi::Result kInvalidOption = 5;
constexpr NvrtcApi::Result kCompilation = 6;
constexpr NvrtcApi::Result kBuiltinFailure = 7;

// From this architecture on, a GPU runs all of its instructions only under an "a" target.
constexpr int kFirstWithOwnCode = 90;

CompileFunction& TheCompileFunction() {
  static auto& function = *new CompileFunction;
  return function;
}

absl::StatusCode CodeOfResult(NvrtcApi::Result result) {
  switch (result) {
    case kOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case kInvalidOption:
    case kBuiltinFailure:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Reads a text of the program, of the size that `size` reports.
NvrtcApi::Result Read(NvrtcApi::Program program,
                      NvrtcApi::Result (*size)(NvrtcApi::Program, size_t*),
                      NvrtcApi::Result (*read)(NvrtcApi::Program, char*), std::string* text) {
  size_t bytes = 0;
  const NvrtcApi::Result result = size(program, &bytes);
  if (result != kSuccess) return result;
  text->assign(bytes + 1, '\0');
  const NvrtcApi::Result done = read(program, text->data());
  text->resize(bytes);
  return done;
}

// Drops the terminating zero and what follows it.
void EndAtZero(std::string* text) {
  text->erase(std::find(text->begin(), text->end(), '\0'), text->end());
}

}  // namespace

absl::StatusOr<Nvrtc> Nvrtc::Open(absl::Span<const char* const> files) {
  WARPCALL_DCHECK(!files.empty());
  absl::Status missing;
  for (const char* const file : files) {
    Nvrtc nvrtc;
    const absl::Status opened = nvrtc.Resolve(file);
    if (opened.ok()) return nvrtc;
    missing.Update(opened);  // keeps the first, which is the one that people should install
  }
  return missing;
}

absl::Status Nvrtc::Resolve(const char* file) {
  ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Open(file, kNeededBy));
  RETURN_IF_ERROR(library.Resolve("nvrtcVersion", &api_.Version));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetNumSupportedArchs", &api_.GetNumSupportedArchs));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetSupportedArchs", &api_.GetSupportedArchs));
  RETURN_IF_ERROR(library.Resolve("nvrtcCreateProgram", &api_.CreateProgram));
  RETURN_IF_ERROR(library.Resolve("nvrtcDestroyProgram", &api_.DestroyProgram));
  RETURN_IF_ERROR(library.Resolve("nvrtcCompileProgram", &api_.CompileProgram));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetCUBINSize", &api_.GetCUBINSize));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetCUBIN", &api_.GetCUBIN));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetPTXSize", &api_.GetPTXSize));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetPTX", &api_.GetPTX));
  RETURN_IF_ERROR(library.Resolve("nvrtcAddNameExpression", &api_.AddNameExpression));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetLoweredName", &api_.GetLoweredName));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetProgramLogSize", &api_.GetProgramLogSize));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetProgramLog", &api_.GetProgramLog));
  RETURN_IF_ERROR(library.Resolve("nvrtcGetErrorString", &api_.GetErrorString));
  int major = 0;
  int minor = 0;
  if (api_.Version(&major, &minor) != kSuccess)
    return absl::UnimplementedError(absl::StrCat(file, " does not tell its version"));
  version_ = absl::StrCat(major, ".", minor);
  RETURN_IF_ERROR(AskArchitectures());
  return OpenBuiltins();
}

// The compiler opens it by its bare name, and so finds one that is open already, from a folder that
// the loader does not search.
absl::Status Nvrtc::OpenBuiltins() const {
  const std::string name = absl::StrCat("libnvrtc-builtins.so.", version_);
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(api_.Version), &self) != 0) {
    const absl::string_view path = self.dli_fname;
    const size_t folder = path.rfind('/');
    const std::string beside =
        absl::StrCat(folder == absl::string_view::npos ? "" : path.substr(0, folder + 1), name);
    if (SharedLibrary::Open(beside.c_str(), kNeededBy).ok()) return absl::OkStatus();
  }
  return SharedLibrary::Open(name.c_str(), kNeededBy).status();
}

absl::Status Nvrtc::AskArchitectures() {
  int count = 0;
  if (api_.GetNumSupportedArchs(&count) == kSuccess && count > 0) {
    architectures_.resize(static_cast<size_t>(count));
    if (api_.GetSupportedArchs(architectures_.data()) == kSuccess) return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("NVRTC ", version_, " does not tell what it compiles for"));
}

absl::Status Nvrtc::CheckTarget(int architecture) const {
  if (absl::c_linear_search(architectures_, architecture)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("NVRTC ", version_, " compiles for sm_",
                                               absl::StrJoin(architectures_, ", sm_"),
                                               "; the GPU is sm_", architecture));
}

std::string TargetName(int architecture) {
  return absl::StrCat("sm_", architecture, architecture >= kFirstWithOwnCode ? "a" : "");
}

absl::StatusOr<std::string> Nvrtc::TargetOf(int architecture) const {
  RETURN_IF_ERROR(CheckTarget(architecture));
  return TargetName(architecture);
}

absl::Status Nvrtc::ToStatus(NvrtcApi::Result result, absl::string_view what) const {
  if (result == kSuccess) return absl::OkStatus();
  return absl::Status(CodeOfResult(result), absl::StrCat("NVRTC ", version_, ": ", what, ": ",
                                                         api_.GetErrorString(result)));
}

std::string Nvrtc::LogOf(NvrtcApi::Program program) const {
  std::string log;
  if (Read(program, api_.GetProgramLogSize, api_.GetProgramLog, &log) != kSuccess) return "";
  EndAtZero(&log);
  return ClippedLog(log, kLogBytesMax);
}

absl::StatusOr<CudaCode> Nvrtc::CodeOf(NvrtcApi::Program program, const CudaSource& source) const {
  CudaCode code;
  code.log = LogOf(program);
  RETURN_IF_ERROR(ToStatus(Read(program, api_.GetCUBINSize, api_.GetCUBIN, &code.cubin),
                           "asking for the code"));
  if (source.with_ptx) {
    RETURN_IF_ERROR(
        ToStatus(Read(program, api_.GetPTXSize, api_.GetPTX, &code.ptx), "asking for PTX"));
    EndAtZero(&code.ptx);
  }
  for (const std::string& entry : source.entries) {
    const char* name = nullptr;
    RETURN_IF_ERROR(ToStatus(api_.GetLoweredName(program, entry.c_str(), &name),
                             absl::StrCat("asking for the name of ", entry)));
    code.kernels.emplace_back(name);
  }
  return code;
}

absl::StatusOr<CudaCode> Nvrtc::Compile(const CudaSource& source) const {
  NvrtcApi::Program program = nullptr;
  RETURN_IF_ERROR(ToStatus(
      api_.CreateProgram(&program, source.text.c_str(), source.file.c_str(), 0, nullptr, nullptr),
      "taking a program"));
  const auto destroy = absl::MakeCleanup([&] { api_.DestroyProgram(&program); });
  for (const std::string& entry : source.entries)
    RETURN_IF_ERROR(ToStatus(api_.AddNameExpression(program, entry.c_str()),
                             absl::StrCat("taking the entry ", entry)));
  std::vector<const char*> options;
  for (const std::string& option : source.options) options.push_back(option.c_str());
  const NvrtcApi::Result compiled =
      api_.CompileProgram(program, static_cast<int>(options.size()), options.data());
  if (compiled == kSuccess) return CodeOf(program, source);
  const std::string log = LogOf(program);
  if (compiled == kCompilation)
    return AsCompileError(
        absl::InternalError(log.empty() ? "the compiler refused it and gave no reason" : log));
  return ToStatus(compiled,
                  absl::StrCat("compiling with ", absl::StrJoin(source.options, " "), ": ", log));
}

absl::StatusOr<const Nvrtc*> LoadNvrtc() {
  static const auto& nvrtc = *new absl::StatusOr<Nvrtc>(Nvrtc::Open(kFiles));
  if (!nvrtc.ok()) return nvrtc.status();
  return &*nvrtc;
}

absl::StatusOr<CudaCode> CompileByNvrtc(const CudaSource& source) {
  ASSIGN_OR_RETURN(const Nvrtc* const nvrtc, LoadNvrtc());
  return nvrtc->Compile(source);
}

void SetCompileFunction(CompileFunction function) { TheCompileFunction() = std::move(function); }
const CompileFunction& GetCompileFunction() { return TheCompileFunction(); }

}  // namespace warpcall::compiled
