#include "tests/kernels/host_kernels.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/common/half.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

// Replaces the parts of CUDA C++ that C++ lacks: threads of a block take turns on one thread, each
// with a stack of its own, and give way to the next where they meet.
constexpr char kHost[] = R"(
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>
#include <ucontext.h>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)
struct Index { unsigned x, y, z; };
Index threadIdx, blockIdx, blockDim, gridDim;
constexpr size_t kStackBytes = 128 << 10;
struct Turns {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  bool done = false;
};
std::vector<Turns> turns;
ucontext_t home;
const std::function<void()>* body;
void GiveWay() {
  const unsigned from = threadIdx.x;
  unsigned to = from;
  do to = (to + 1) % turns.size(); while (turns[to].done && to != from);
  if (turns[to].done) swapcontext(&turns[from].context, &home);
  threadIdx.x = to;
  if (to != from) swapcontext(&turns[from].context, &turns[to].context);
}
void TakeTurns() {
  (*body)();
  turns[threadIdx.x].done = true;
  GiveWay();
}
struct Meeting {
  int threads;
  int arrived = 0;
  unsigned times = 0;
  void Await() {
    const unsigned before = times;
    if (++arrived == threads) {
      arrived = 0;
      ++times;
    }
    while (times == before) GiveWay();
  }
};
struct Block {
  Meeting all;
  std::vector<Meeting> warps;
  double values[1024];
};
Block* block = nullptr;
inline void __syncthreads() { block->all.Await(); }
template <typename V>
V __shfl_xor_sync(unsigned, V value, int lanes) {
  Meeting& warp = block->warps[threadIdx.x / 32];
  block->values[threadIdx.x] = value;
  warp.Await();
  const V other = static_cast<V>(block->values[threadIdx.x ^ lanes]);
  warp.Await();
  return other;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}
inline float rsqrtf(float a) { return 1 / sqrtf(a); }
inline double rsqrt(double a) { return 1 / sqrt(a); }
extern "C" {
float (*widen_bits)(unsigned short bits, int type);
unsigned short (*narrow_bits)(float value, int type);
}
template <int type>
struct SixteenBits {
  SixteenBits() = default;
  explicit SixteenBits(float value) : bits(narrow_bits(value, type)) {}
  operator float() const { return widen_bits(bits, type); }
  unsigned short bits;
};
using __half = SixteenBits<2>;
using __nv_bfloat16 = SixteenBits<3>;
#define CONVERSIONS_1
#define CONVERSIONS_16(type)                                          \
  inline float Widen(u16 a) { return widen_bits(a, type); }           \
  inline u16 Narrow(float a) { return narrow_bits(a, type); }         \
  inline float Low(u32 pair) { return Widen((u16)pair); }             \
  inline float High(u32 pair) { return Widen((u16)(pair >> 16)); }    \
  inline u32 Pair(float low, float high) {                            \
    return Narrow(low) | (u32)Narrow(high) << 16;                     \
  }
#define CONVERSIONS_2 CONVERSIONS_16(2)
#define CONVERSIONS_3 CONVERSIONS_16(3)
#define WARPCALL_INSTRUCTIONS(type)                                   \
  inline float Ex2(float a) { return exp2f(a); }                      \
  inline float Rcp(float a) { return 1 / a; }                         \
  inline float Max(float a, float b) { /* +0 is above -0 */ \
    return a != a || a > b || (a == b && !std::signbit(a)) ? a : b; \
  } \
  inline float Min(float a, float b) { \
    return a != a || a < b || (a == b && std::signbit(a)) ? a : b; \
  } \
  CONVERSIONS_##type                                                  \
  inline Vector LoadOnce(const T* at) { return *(const Vector*)at; }  \
  inline Vector Load(const T* at) { return *(const Vector*)at; }      \
  inline void Store(T* at, Vector v) { *(Vector*)at = v; }
template <typename Body>
void ForEachBlock(const Body& body) {
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        body();
      }
}
template <typename Kernel>
void Launch(const Kernel& kernel, Index blocks, int threads, bool meet) {
  gridDim = blocks;
  blockDim = {(unsigned)threads, 1, 1};
  if (!meet) {
    ForEachBlock([&] {
      for (threadIdx.x = 0; threadIdx.x < (unsigned)threads; ++threadIdx.x) kernel();
    });
    return;
  }
  Block one{{threads}, std::vector<Meeting>((threads + 31) / 32, Meeting{32}), {}};
  block = &one;
  const std::function<void()> blocks_in_turn = [&] {
    ForEachBlock([&] {
      kernel();
      one.all.Await();
    });
  };
  body = &blocks_in_turn;
  turns = std::vector<Turns>(threads);
  for (Turns& its : turns) {
    getcontext(&its.context);
    its.context.uc_stack.ss_sp = its.stack.get();
    its.context.uc_stack.ss_size = kStackBytes;
    makecontext(&its.context, TakeTurns, 0);
  }
  threadIdx.x = 0;
  swapcontext(&home, &turns[0].context);
}
template <typename... A, size_t... I>
bool LaunchWith(void (*kernel)(A...), std::index_sequence<I...>, const unsigned* sizes,
                const void* const* values, const std::vector<size_t>& bytes, bool meet) {
  if (bytes != std::vector<size_t>{sizeof(A)...}) return false;
  Launch([=] { kernel(*(std::decay_t<A>*)values[I]...); }, {sizes[0], sizes[1], sizes[2]},
         sizes[3], meet);
  return true;
}
template <typename... A>
bool LaunchWith(void (*kernel)(A...), const unsigned* sizes, const void* const* values,
                const std::vector<size_t>& bytes, bool meet) {
  return LaunchWith(kernel, std::index_sequence_for<A...>(), sizes, values, bytes, meet);
}
)";

float Widen(unsigned short bits, int type) {
  return type == static_cast<int>(DataType::kFloat16) ? ToFloat(Float16{bits})
                                                      : ToFloat(BFloat16{bits});
}

unsigned short Narrow(float value, int type) {
  return type == static_cast<int>(DataType::kFloat16) ? FromFloat<Float16>(value).bits
                                                      : FromFloat<BFloat16>(value).bits;
}

}  // namespace

HostKernels::HostKernels() : source_(kHost) {}

HostKernels::~HostKernels() {
  if (loaded_ != nullptr) dlclose(loaded_);
}

int HostKernels::AddSource(const std::string& source, const std::string& entry,
                           const std::string& caller) {
  const int number = count_++;
  absl::StrAppend(&source_, "namespace k", number, " {\n#define ", entry, " kernel_", number, "\n",
                  source, "\n#undef ", entry, "\n#define KERNEL kernel_", number,
                  "\n#define RUN run_", number, "\n", caller, "\n#undef KERNEL\n#undef RUN\n}\n");
  return number;
}

int HostKernels::Add(const expression::CudaKernel& kernel, size_t inputs) {
  std::string arguments;
  for (size_t i = 0; i < inputs; ++i) absl::StrAppend(&arguments, "(const T*)x[", i, "], ");
  const bool meet = kernel.shape.form != expression::CudaShape::Form::kElements;
  return AddSource(
      kernel.source, "warpcall_fused",
      absl::StrCat("extern \"C\" void RUN(const void* const* x, void* y) {\n"
                   "  Launch([=] { KERNEL(",
                   arguments, "(T*)y); }, {", kernel.shape.blocks, ", 1, 1}, ",
                   kernel.shape.block_threads, ", ", meet ? "true" : "false", ");\n}"));
}

int HostKernels::Add(const std::string& source, const std::string& entry, DataType type) {
  const char* const names[] = {"float", "__half", "__nv_bfloat16"};
  const char* const element = names[static_cast<int>(type) - 1];
  const bool meet = absl::StrContains(source, "_sync");  // threads, in a barrier or a shuffle
  return AddSource(
      absl::StrCat("using T = ", element, ";\n", source), entry,
      absl::StrCat("extern \"C\" bool RUN(const unsigned* sizes, const void* const* "
                   "values,\n    const size_t* bytes, size_t count) {\n"
                   "  return LaunchWith(KERNEL, sizes, values, {bytes, bytes + count}, ",
                   meet ? "true" : "false", ");\n}"));
}

bool HostKernels::Compile() {
  if (TestElementsMax() > 0) return false;
  if (std::system("c++ --version > /dev/null 2>&1") != 0) return false;
  const std::string library = folder_.Path("kernels.so");
  std::ofstream(folder_.Path("kernels.cc")) << source_;
  const std::string command =
      absl::StrCat("c++ -std=c++20 -O1 -w -ffp-contract=off -fno-strict-aliasing -fPIC -shared ",
                   "-o ", library, " ", folder_.Path("kernels.cc"));
  if (std::system(command.c_str()) == 0) loaded_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded_ == nullptr) std::abort();
  *static_cast<float (**)(unsigned short, int)>(dlsym(loaded_, "widen_bits")) = Widen;
  *static_cast<unsigned short (**)(float, int)>(dlsym(loaded_, "narrow_bits")) = Narrow;
  return true;
}

void HostKernels::Run(int number, const void* const* inputs, void* output) const {
  const auto run = reinterpret_cast<void (*)(const void* const*, void*)>(
      dlsym(loaded_, absl::StrCat("run_", number).c_str()));
  run(inputs, output);
}

bool HostKernels::Launch(int number, const manifest::KernelLaunch& launch,
                         const Operands& operands) const {
  std::vector<const void*> pointers(operands.inputs.begin(), operands.inputs.end());
  pointers.insert(pointers.end(), operands.outputs.begin(), operands.outputs.end());
  std::vector<const void*> values;
  std::vector<size_t> bytes;
  for (const manifest::Parameter& parameter : launch.parameters) {
    const bool is_pointer = parameter.operand >= 0;
    values.push_back(is_pointer ? static_cast<const void*>(&pointers[parameter.operand])
                                : &parameter.bits);
    bytes.push_back(parameter.bytes);
  }
  const unsigned sizes[] = {launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0]};
  const auto run =
      reinterpret_cast<bool (*)(const unsigned*, const void* const*, const size_t*, size_t)>(
          dlsym(loaded_, absl::StrCat("run_", number).c_str()));
  return run(sizes, values.data(), bytes.data(), bytes.size());
}

}  // namespace warpcall::testing
