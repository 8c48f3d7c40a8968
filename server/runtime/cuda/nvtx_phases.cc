#include "server/runtime/cuda/nvtx_phases.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "absl/container/flat_hash_map.h"

namespace warpcall {
namespace {

nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("warpcall");
  return domain;
}

// Registers a literal once per thread, by its address.
nvtxStringHandle_t Registered(const char* name) {
  thread_local absl::flat_hash_map<const void*, nvtxStringHandle_t> strings;
  const auto [entry, is_new] = strings.try_emplace(name, nullptr);
  if (is_new) entry->second = nvtxDomainRegisterStringA(Domain(), name);
  return entry->second;
}

void Begin(const char* name, uint64_t request) {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = Registered(name);
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = request;
  nvtxDomainRangePushEx(Domain(), &event);
}

void End() { nvtxDomainRangePop(Domain()); }

constexpr PhaseWatcher kWatcher = {Begin, End};

}  // namespace

const PhaseWatcher* NvtxPhaseWatcher() {
  const char* const injection = std::getenv("NVTX_INJECTION64_PATH");
  return injection == nullptr || *injection == '\0' ? nullptr : &kWatcher;
}

}  // namespace warpcall
