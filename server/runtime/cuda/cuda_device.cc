#include "server/runtime/cuda/cuda_device.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/compiler.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/probe.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cuda_stream.h"
#include "server/runtime/cuda/cupti_profiler.h"
#include "server/runtime/cuda/guarded_memory.h"

namespace warpcall {
namespace {

// Operands of up to this size in all stay in host memory, which the kernel reads and writes
// over PCIe: 1 MiB in and 1 MiB out took 45 us so on an H200 and 56 us with copies; 4 KiB 9.7
// and 19.4.
constexpr size_t kUseStagingBytesMax = size_t{2} << 20;
// For kernels that read elements again and again: the L2 does not keep host memory.
constexpr size_t kUseStagingRereadBytesMax = size_t{64} << 10;
// Operand bytes of a round. Smaller rounds leave less uncovered at both ends, larger rounds cost
// fewer copies and launches: 256 MiB in and out on an H200 took 6206, 6214, 6184 and 6003 us in
// rounds of 2, 4, 8 and 16 MiB.
constexpr size_t kRoundBytes = size_t{16} << 20;

// Freed memory of tensors that stayed, kept for the next ones: the rest is for kernels.
constexpr uint64_t kResidentKeptBytes = uint64_t{256} << 20;

// Dense multiply-adds of a multiprocessor's tensor cores in float16, two FLOPs each; 0: not known.
double Float16FlopsPerClock(int32_t architecture) {
  switch (architecture) {
    case 80:
      return 2048;
    case 86:
    case 89:
    case 120:
      return 1024;
    case 90:
      return 4096;
    case 100:
    case 103:
      return 8192;
    default:
      return 0;
  }
}

// True once a GPU of this process was lost. CUDA 13 with driver 580 then answers every call of
// the process with that GPU's error, those for other GPUs too, so all of them are lost. Seen on
// two H200s, for a trap and for an illegal address, with any thread, pinned memory or memory
// pool.
std::atomic<bool> process_lost{false};

}  // namespace

absl::StatusOr<int> CudaDevice::Count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) return 0;
  RETURN_IF_ERROR(cuda::ToStatus(error, "counting the GPUs"));
  return count;
}

std::string CudaDevice::NameOf(int ordinal) { return absl::StrCat("cuda:", ordinal); }

absl::StatusOr<std::string> CudaDevice::ModelOf(int ordinal) {
  WARPCALL_DCHECK(ordinal >= 0 && ordinal < Count().value_or(0), ordinal);
  cudaDeviceProp device;
  RETURN_IF_ERROR(
      cuda::ToStatus(cudaGetDeviceProperties(&device, ordinal), "asking for properties"));
  return absl::StrCat(device.name, ", ", device.major, ".", device.minor);
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(int ordinal,
                                                             const std::string& compile_cache) {
  WARPCALL_DCHECK(ordinal >= 0 && ordinal < Count().value_or(0), ordinal);
  std::unique_ptr<CudaDevice> device(new CudaDevice(ordinal));
  RETURN_IF_ERROR(device->MakeCurrent());
  RETURN_IF_ERROR(device->Describe());
  RETURN_IF_ERROR(cuda::CheckDeviceCode(device->properties_));
  // Without it the pool returns free memory to the system at every synchronisation.
  constexpr uint64_t kKeepAll = std::numeric_limits<uint64_t>::max();
  ASSIGN_OR_RETURN(device->pool_, device->CreatePool(kKeepAll));
  ASSIGN_OR_RETURN(device->resident_pool_, device->CreatePool(kResidentKeptBytes));
  RETURN_IF_ERROR(
      device->Check(cudaStreamCreateWithFlags(&device->resident_stream_, cudaStreamNonBlocking),
                    "creating a stream for tensors that stay"));
  device->libraries_ = std::make_unique<cuda::Libraries>(compile_cache);
  return device;
}

absl::Status CudaDevice::Describe() {
  cudaDeviceProp device;
  RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&device, ordinal_), "asking for properties"));
  properties_.name = NameOf(ordinal_);
  properties_.kind = DeviceKind::kCuda;
  properties_.description = device.name;
  properties_.memory_bytes = static_cast<int64_t>(device.totalGlobalMem);
  properties_.multiprocessors = device.multiProcessorCount;
  properties_.threads_per_multiprocessor = device.maxThreadsPerMultiProcessor;
  properties_.l2_bytes = device.l2CacheSize;
  properties_.shared_memory_per_block_bytes = static_cast<int64_t>(device.sharedMemPerBlockOptin);
  properties_.compute_capability = absl::StrCat(device.major, ".", device.minor);
  properties_.architecture = device.major * 10 + device.minor;
  properties_.ordinal = ordinal_;
  char pci_bus_id[32] = "";
  RETURN_IF_ERROR(Check(cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), ordinal_),
                        "asking for the PCI bus id"));
  properties_.pci_bus_id = pci_bus_id;
  return DescribeLimits();
}

absl::Status CudaDevice::DescribeLimits() {
  int core_khz = 0;
  int memory_khz = 0;
  int bus_bits = 0;
  for (const auto& [attribute, value] : {std::pair(cudaDevAttrClockRate, &core_khz),
                                         std::pair(cudaDevAttrMemoryClockRate, &memory_khz),
                                         std::pair(cudaDevAttrGlobalMemoryBusWidth, &bus_bits)})
    RETURN_IF_ERROR(Check(cudaDeviceGetAttribute(value, attribute, ordinal_), "asking for clocks"));
  // Memory is read at both edges of its clock.
  properties_.pin_bytes_per_second = 2e3 * memory_khz * bus_bits / 8;
  properties_.float16_flops_per_second =
      1e3 * core_khz * properties_.multiprocessors * Float16FlopsPerClock(properties_.architecture);
  return absl::OkStatus();
}

absl::StatusOr<cudaMemPool_t> CudaDevice::CreatePool(uint64_t kept_bytes) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, ordinal_};
  cudaMemPool_t pool = nullptr;
  RETURN_IF_ERROR(Check(cudaMemPoolCreate(&pool, &properties), "creating a memory pool"));
  RETURN_IF_ERROR(Check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes),
                        "setting up the memory pool"));
  return pool;
}

CudaDevice::~CudaDevice() {
  MakeCurrent().IgnoreError();
  plans().Clear();
  libraries_.reset();
  if (resident_stream_ != nullptr) cudaStreamDestroy(resident_stream_);
  for (const cudaMemPool_t pool : {pool_, resident_pool_})
    if (pool != nullptr) cudaMemPoolDestroy(pool);
}

absl::Status CudaDevice::Check(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  if (cuda::IsSticky(error)) process_lost.store(true, std::memory_order_release);
  return cuda::ToStatus(error, absl::StrCat(properties_.name, ": ", what));
}

bool CudaDevice::healthy() const { return !process_lost.load(std::memory_order_acquire); }

absl::Status CudaDevice::MakeCurrent() {
  return Check(cudaSetDevice(ordinal_), "choosing the device");
}

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::CreateStream() {
  return CudaStream::Create(this);
}

absl::StatusOr<Buffer> CudaDevice::AllocateStaging(size_t bytes) {
  if (bytes == 0) return Buffer();
  RETURN_IF_ERROR(MakeCurrent());
  void* memory = nullptr;
  const absl::Status status =
      Check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
            absl::StrCat("pinning ", bytes, " bytes of host memory (staging_mib)"));
  if (!status.ok()) return status;
  // No owner: responses that are still being sent may outlive the device.
  return Buffer(
      memory, bytes, [](void*, void* data, size_t) { cudaFreeHost(data); }, nullptr);
}

absl::Status CudaDevice::PinStaging(void* data, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeCurrent());
  return Check(cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
               absl::StrCat("pinning ", bytes, " bytes of shared memory (staging_mib)"));
}

absl::StatusOr<Buffer> CudaDevice::AllocateMemory(size_t bytes, cudaStream_t stream) {
  return AllocateFrom(pool_, bytes, stream);
}

absl::StatusOr<Buffer> CudaDevice::AllocateResident(size_t bytes) {
  RETURN_IF_ERROR(MakeCurrent());
  Buffer memory;
  ASSIGN_OR_RETURN(memory, AllocateFrom(resident_pool_, bytes, resident_stream_));
  // Other streams use it from here on.
  RETURN_IF_ERROR(Check(cudaStreamSynchronize(resident_stream_), "allocating memory"));
  return memory;
}

absl::StatusOr<Buffer> CudaDevice::AllocateGuarded(size_t bytes) {
  RETURN_IF_ERROR(MakeCurrent());
  return AllocateGuardedMemory(ordinal_, bytes);
}

absl::StatusOr<Buffer> CudaDevice::AllocateFrom(cudaMemPool_t pool, size_t bytes,
                                                cudaStream_t stream) {
  if (bytes == 0) return Buffer();
  if (bytes > static_cast<size_t>(properties_.memory_bytes))
    return absl::ResourceExhaustedError(absl::StrCat("the work needs ", bytes, " bytes; ",
                                                     properties_.name, " has ",
                                                     properties_.memory_bytes, " bytes of memory"));
  struct Owner {
    CudaDevice* device;
    cudaStream_t stream;
  };
  void* memory = nullptr;
  RETURN_IF_ERROR(Check(cudaMallocFromPoolAsync(&memory, bytes, pool, stream),
                        absl::StrCat("allocating ", bytes, " bytes beside ", used_bytes_.load(),
                                     " in use of ", properties_.memory_bytes)));
  used_bytes_.fetch_add(static_cast<int64_t>(bytes));
  return Buffer(
      memory, bytes,
      [](void* owner, void* data, size_t size) {
        const std::unique_ptr<Owner> its(static_cast<Owner*>(owner));
        its->device->MakeCurrent().IgnoreError();
        its->device->Check(cudaFreeAsync(data, its->stream), "freeing memory").IgnoreError();
        its->device->used_bytes_.fetch_sub(static_cast<int64_t>(size));
      },
      new Owner{this, stream});
}

bool CudaDevice::KernelsUseStaging(size_t bytes, bool suits_host_memory) const {
  return bytes <= (suits_host_memory ? kUseStagingBytesMax : kUseStagingRereadBytesMax);
}

size_t CudaDevice::round_bytes() const { return kRoundBytes; }

MemoryUsage CudaDevice::memory_usage() const {
  int64_t reserved = 0;
  for (const cudaMemPool_t pool : {pool_, resident_pool_}) {
    uint64_t bytes = 0;
    if (healthy() &&
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes) == cudaSuccess)
      reserved += static_cast<int64_t>(bytes);
  }
  return {properties_.memory_bytes, used_bytes_.load(), reserved};
}

compiled::Counts CudaDevice::compile_counts() const { return libraries_->compiler().counts(); }

absl::StatusOr<std::unique_ptr<DeviceProfiler>> CudaDevice::CreateProfiler() {
  return CreateCuptiProfiler(this);
}

}  // namespace warpcall
