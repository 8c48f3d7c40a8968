// Phases as a tool sees them: this program is its own tool, linked in as NVTX allows.
#include "server/runtime/cuda/nvtx_phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

// NVTX looks for a tool here; its header would define it as null.
#define NVTX_STATIC_INJECTION_IMPL
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(uint32_t));
#include <nvtx3/nvToolsExt.h>

namespace {

using ::testing::ElementsAre;

// Reported by the working thread; the test's threads follow each other.
std::vector<std::string>& Seen() {
  static auto& seen = *new std::vector<std::string>;
  return seen;
}
std::vector<std::string>& Strings() {
  static auto& strings = *new std::vector<std::string>;
  return strings;
}

nvtxDomainHandle_t NVTX_API CreateDomain(const char* name) {
  Seen().push_back(absl::StrCat("domain ", name));
  return reinterpret_cast<nvtxDomainHandle_t>(uintptr_t{1});
}

nvtxStringHandle_t NVTX_API Register(nvtxDomainHandle_t, const char* string) {
  Strings().push_back(string);
  return reinterpret_cast<nvtxStringHandle_t>(Strings().size());
}

int NVTX_API Push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  EXPECT_EQ(event->messageType, NVTX_MESSAGE_TYPE_REGISTERED);
  EXPECT_EQ(event->payloadType, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
  const size_t string = reinterpret_cast<uintptr_t>(event->message.registered);
  Seen().push_back(absl::StrCat(Strings().at(string - 1), " ", event->payload.ullValue));
  return 0;
}

int NVTX_API Pop(nvtxDomainHandle_t) {
  Seen().push_back("end");
  return 0;
}

template <typename Function>
void Install(NvtxFunctionTable table, int slot, Function function) {
  *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int NVTX_API Attach(NvtxGetExportTableFunc_t get_export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 1) return 0;
  Install(table, NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  Install(table, NVTX_CBID_CORE2_DomainRegisterStringA, Register);
  Install(table, NVTX_CBID_CORE2_DomainRangePushEx, Push);
  Install(table, NVTX_CBID_CORE2_DomainRangePop, Pop);
  return 1;
}

}  // namespace

NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = Attach;

namespace warpcall {
namespace {

TEST(NvtxPhasesTest, ThereIsNoWatcherWithoutATool) {
  unsetenv("NVTX_INJECTION64_PATH");
  EXPECT_EQ(NvtxPhaseWatcher(), nullptr);
  setenv("NVTX_INJECTION64_PATH", "", 1);
  EXPECT_EQ(NvtxPhaseWatcher(), nullptr);
}

TEST(NvtxPhasesTest, AToolSeesNestedRangesWithTheRequestsIds) {
  setenv("NVTX_INJECTION64_PATH", "/there/is/no/such/library.so", 1);
  const PhaseWatcher* const watcher = NvtxPhaseWatcher();
  ASSERT_NE(watcher, nullptr);
  unsetenv("NVTX_INJECTION64_PATH");  // the tool that is linked in comes after one from a file
  phase_watcher.store(watcher);
  const auto work = [] {
    const Phase outer("kernel", 18446744073709551615u);
    { const Phase inner("launch", 7); }
    const Phase again("launch", 8);
  };
  work();
  std::thread(work).join();
  phase_watcher.store(nullptr);
  EXPECT_THAT(Seen(), ElementsAre("domain warpcall", "kernel 18446744073709551615", "launch 7",
                                  "end", "launch 8", "end", "end", "kernel 18446744073709551615",
                                  "launch 7", "end", "launch 8", "end", "end"));
  EXPECT_THAT(Strings(), ElementsAre("kernel", "launch", "kernel", "launch"))
      << "each thread registers a name once";
}

}  // namespace
}  // namespace warpcall
