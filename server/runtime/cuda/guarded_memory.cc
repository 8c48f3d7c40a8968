#include "server/runtime/cuda/guarded_memory.h"

#include <cuda.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/driver_function.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr unsigned kVersion = 12000;  // unchanged since 10.2

struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemCreate) create;
  decltype(&cuMemMap) map;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemRelease) release;
  decltype(&cuMemAddressFree) free_addresses;
};

template <typename Function>
absl::Status Find(const char* name, Function* function) {
  ASSIGN_OR_RETURN(*function, cuda::FindDriverFunction<Function>(name, kVersion));
  return absl::OkStatus();
}

absl::StatusOr<Driver> FindDriver() {
  Driver driver;
  RETURN_IF_ERROR(Find("cuMemGetAllocationGranularity", &driver.granularity));
  RETURN_IF_ERROR(Find("cuMemAddressReserve", &driver.reserve));
  RETURN_IF_ERROR(Find("cuMemCreate", &driver.create));
  RETURN_IF_ERROR(Find("cuMemMap", &driver.map));
  RETURN_IF_ERROR(Find("cuMemSetAccess", &driver.set_access));
  RETURN_IF_ERROR(Find("cuMemUnmap", &driver.unmap));
  RETURN_IF_ERROR(Find("cuMemRelease", &driver.release));
  RETURN_IF_ERROR(Find("cuMemAddressFree", &driver.free_addresses));
  return driver;
}

// Addresses, of which all but the last page are mapped.
struct Mapping {
  Driver driver;
  CUdeviceptr address = 0;
  size_t reserved = 0;
  size_t mapped = 0;

  ~Mapping() {
    if (mapped > 0) driver.unmap(address, mapped);
    if (reserved > 0) driver.free_addresses(address, reserved);
  }
};

absl::Status Check(CUresult result, absl::string_view what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": the driver's error ", static_cast<int>(result));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return absl::ResourceExhaustedError(text);
  return absl::FailedPreconditionError(text);
}

}  // namespace

absl::StatusOr<Buffer> AllocateGuardedMemory(int ordinal, size_t bytes) {
  auto mapping = std::make_unique<Mapping>();
  ASSIGN_OR_RETURN(mapping->driver, FindDriver());
  const Driver& driver = mapping->driver;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  size_t page = 0;
  RETURN_IF_ERROR(Check(driver.granularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                        "asking for pages"));
  const size_t size = (bytes + page - 1) / page * page;
  RETURN_IF_ERROR(
      Check(driver.reserve(&mapping->address, size + page, 0, 0, 0), "reserving addresses"));
  mapping->reserved = size + page;
  CUmemGenericAllocationHandle memory = 0;
  RETURN_IF_ERROR(Check(driver.create(&memory, size, &properties, 0), "allocating pages"));
  absl::Status status = Check(driver.map(mapping->address, size, 0, memory, 0), "mapping pages");
  if (status.ok()) mapping->mapped = size;
  driver.release(memory);  // a mapping keeps it
  RETURN_IF_ERROR(status);
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  RETURN_IF_ERROR(
      Check(driver.set_access(mapping->address, size, &access, 1), "opening pages to kernels"));
  void* const data = reinterpret_cast<void*>(mapping->address);
  return Buffer(
      data, size, [](void* owner, void*, size_t) { delete static_cast<Mapping*>(owner); },
      mapping.release());
}

}  // namespace warpcall
