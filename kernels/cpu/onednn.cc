#include "kernels/cpu/onednn.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/onednn_isa.h"

namespace warpcall::onednn {
namespace {

// Primitives that oneDNN remembers, about 0.1 MB each: with its default of 1024, clients that send
// one shape after another made the process grow by 50 MB.
constexpr int kPrimitivesMax = 64;

// oneDNN reads the second name where the first is not set.
absl::string_view AskedIsa() {
  for (const char* const name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})
    if (const char* const asked = std::getenv(name)) return asked;
  return "";
}

// OpenMP's own names, which oneDNN brings where it runs on it. Built on another runtime it has
// neither, and divides its work itself.
struct OpenMp {
  using SetThreads = void (*)(int);
  using MaxThreads = int (*)();

  SetThreads set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  int threads_max = Max();  // as the environment and the processor say, before anybody sets it

  static int Max() {
    const auto max = reinterpret_cast<MaxThreads>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    return max == nullptr ? 1 : max();
  }
};

}  // namespace

int ThreadsFor(int64_t work, int64_t work_per_thread, int threads_max) {
  return static_cast<int>(std::clamp<int64_t>(work / work_per_thread, 1, std::max(1, threads_max)));
}

void UseThreads(int threads) {
  static const OpenMp open_mp;
  if (open_mp.set_threads != nullptr) open_mp.set_threads(std::min(threads, open_mp.threads_max));
}

Team::Team(const LaunchContext& context, const cpu::ThreadPool::Guest::Wish& wish)
    : guest_(static_cast<cpu::ThreadPool*>(context.stream), wish) {
  UseThreads(guest_.threads());
}

Team::Team(const LaunchContext& context, int64_t work, int64_t work_per_thread)
    : Team(context, {.max = ThreadsFor(work, work_per_thread, std::numeric_limits<int>::max())}) {}

dnnl::engine CpuEngine() {
  static const dnnl::engine engine = [] {
    // Comes first: oneDNN takes no limit once it has examined the processor.
    const std::optional<dnnl::cpu_isa> limit = IsaLimit(cpu::ReadAmxFacts(), AskedIsa());
    if (limit.has_value())
      dnnl::error::wrap_c_api(dnnl_set_max_cpu_isa(static_cast<dnnl_cpu_isa_t>(*limit)),
                              "limiting the instruction set");
    dnnl::set_primitive_cache_capacity(kPrimitivesMax);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

}  // namespace warpcall::onednn
