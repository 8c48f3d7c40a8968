// A cluster of blocks on the CPU, for kernels made of instructions of Ampere and Hopper. Every
// thread is a context that runs until it has to wait, one after the other, so that runs repeat. The
// files under kernels/ here stand in for those with equal names, which hold instructions in
// assembler. Work that is asynchronous on the chip happens when a thread waits for it, or at once;
// barriers, bytes that they count, swizzled boxes and clusters are as the PTX ISA describes them.
// Only a GPU can show that the chip does the same.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

// The kernels' names; set for the thread that runs.
struct EmulatedIndex {
  uint32_t x = 0;
  uint32_t y = 0;
};
inline EmulatedIndex threadIdx;
inline EmulatedIndex blockIdx;
inline EmulatedIndex gridDim;

namespace warpcall::emulated {

// Addresses begin here: 0 is none, and boxes are aligned to 1024 bytes.
inline constexpr uint32_t kSharedBegin = 1024;
inline constexpr uint32_t kSharedBytes = 227 << 10;
inline constexpr int kWarpThreads = 32;

// Swizzles an address above its chunk of 16 bytes: the pattern repeats every eight rows of 128
// bytes.
constexpr uint32_t Swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

// A barrier of a block's shared memory.
struct Barrier {
  int count = 0;
  int pending = 0;
  int64_t bytes = 0;  // expected, but not here yet
  uint32_t phase = 0;
};

// Groups of a thread's asynchronous work; waiting for groups does their work, oldest first.
class Groups {
 public:
  void Add(std::function<void()> work) { open_.push_back(std::move(work)); }
  void Commit();
  void WaitForAllBut(size_t pending);

 private:
  std::vector<std::function<void()>> open_;
  std::deque<std::vector<std::function<void()>>> groups_;
};

struct Thread {
  ucontext_t context = {};
  std::unique_ptr<char[]> stack;
  uint32_t index = 0;
  uint32_t rank = 0;  // its block's rank in the cluster
  bool done = false;
  uint32_t cluster_arrivals = 0;
  uint32_t products = 0;  // begun so far
  Groups writes;          // to shared memory, which products do not see yet
  Groups stores;
  Groups multiplications;
  Groups copies;
};

struct Launch {
  uint32_t blocks;
  uint32_t cluster_blocks;
  uint32_t threads;
};

// Runs `body` in every thread of every block, cluster after cluster. Returns the first error, or
// "": threads that wait for each other for ever, unexpected arrivals, memory outside the block's,
// overwritten barriers.
std::string Run(const Launch& launch, const std::function<void()>& body);

// ---- For the instructions, in a thread of Run. ----

Thread& Self();
// Shared memory of this thread's block, or of the cluster's block `rank`.
char* Shared(uint32_t address, size_t bytes);
char* SharedOf(uint32_t rank, uint32_t address, size_t bytes);
// The address of a place in shared memory of this thread's block.
uint32_t AddressOf(const void* place);

// Lets the other threads run until `ready()`.
void WaitUntil(const std::function<bool()>& ready);
// Waits until `count` threads of this thread's block have called it with the same `name`.
void Meet(int name, int count);

void InitBarrier(uint32_t address, int count);
void ArriveAt(uint32_t rank, uint32_t address, int64_t expected_bytes);
void CountBytes(uint32_t rank, uint32_t address, int64_t bytes);
bool HasEnded(uint32_t address, uint32_t parity);

void ClusterArrive();
void ClusterWait();

// Words that a warp's or a warpgroup's threads share under a key; each thread writes its own part.
std::vector<uint32_t>& Board(uint32_t key, size_t words);

// Ends the run with a message.
[[noreturn]] void Fail(const std::string& message);

}  // namespace warpcall::emulated

// Under CUDA's names.
void __syncthreads();
void __syncwarp();
float __uint_as_float(uint32_t bits);
