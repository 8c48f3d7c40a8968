#include "tests/kernels/emulated/hopper.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall::emulated {
namespace {

constexpr size_t kStackBytes = 96 << 10;
constexpr char kCanary = 0x55;  // stands in a barrier's place

struct Block {
  std::vector<char> memory = std::vector<char>(kSharedBytes, '\xFF');
  std::map<uint32_t, Barrier> barriers;
  struct Meeting {
    int here = 0;
    uint32_t past = 0;
  };
  std::map<int, Meeting> meetings;
  std::map<uint32_t, std::vector<uint32_t>> boards;
};

struct Cluster {
  Launch launch;
  uint32_t first_block;
  const std::function<void()>* body;
  std::vector<Block> blocks;
  std::vector<std::unique_ptr<Thread>> threads;
  uint32_t arrivals = 0;
  uint64_t events = 0;  // whatever may end somebody's wait
  std::string failure;
};

Cluster* cluster = nullptr;
Thread* self = nullptr;
ucontext_t scheduler;

void Yield() {
  swapcontext(&self->context, &scheduler);
  if (!cluster->failure.empty()) setcontext(&scheduler);
}

void Begin() {
  (*cluster->body)();
  self->done = true;
  ++cluster->events;
  setcontext(&scheduler);
}

Barrier& At(uint32_t rank, uint32_t address) {
  std::map<uint32_t, Barrier>& barriers = cluster->blocks[rank].barriers;
  const auto found = barriers.find(address);
  if (found == barriers.end()) Fail(absl::StrCat("no barrier was made at ", address));
  return found->second;
}

void EndPhaseIfComplete(Barrier* barrier) {
  ++cluster->events;
  if (barrier->pending < 0) Fail("more arrivals at a barrier than it counts");
  if (barrier->pending > 0 || barrier->bytes != 0) return;
  ++barrier->phase;
  barrier->pending = barrier->count;
}

void AddThreads() {
  const uint32_t count = cluster->launch.threads * cluster->launch.cluster_blocks;
  for (uint32_t i = 0; i < count; ++i) {
    auto thread = std::make_unique<Thread>();
    thread->index = i % cluster->launch.threads;
    thread->rank = i / cluster->launch.threads;
    thread->stack = std::make_unique<char[]>(kStackBytes);
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = thread->stack.get();
    thread->context.uc_stack.ss_size = kStackBytes;
    makecontext(&thread->context, Begin, 0);
    cluster->threads.push_back(std::move(thread));
  }
}

void Resume(Thread* thread) {
  self = thread;
  threadIdx.x = thread->index;
  blockIdx.x = cluster->first_block + thread->rank;
  swapcontext(&scheduler, &thread->context);
}

std::string WhoWaits() {
  std::string who = "all wait for ever:";
  for (const auto& thread : cluster->threads)
    if (!thread->done && thread->index % kWarpThreads == 0)
      absl::StrAppend(&who, " block ", thread->rank, " thread ", thread->index);
  return who;
}

// Every thread in turn, until none is left or no round makes any difference.
void RunToTheEnd() {
  for (bool left = true; left && cluster->failure.empty();) {
    left = false;
    const uint64_t before = cluster->events;
    for (const auto& thread : cluster->threads) {
      if (thread->done) continue;
      left = true;
      Resume(thread.get());
      if (!cluster->failure.empty()) return;
    }
    if (left && cluster->events == before) cluster->failure = WhoWaits();
  }
}

void CheckBarriers() {
  for (Block& block : cluster->blocks)
    for (const auto& [address, barrier] : block.barriers) {
      const char* const at = &block.memory[address - kSharedBegin];
      if (std::any_of(at, at + sizeof(uint64_t), [](char byte) { return byte != kCanary; }))
        cluster->failure = absl::StrCat("the barrier at ", address, " was written over");
    }
}

}  // namespace

void Groups::Commit() { groups_.push_back(std::exchange(open_, {})); }

void Groups::WaitForAllBut(size_t pending) {
  for (; groups_.size() > pending; groups_.pop_front())
    for (const std::function<void()>& work : groups_.front()) work();
}

std::string Run(const Launch& launch, const std::function<void()>& body) {
  gridDim.x = launch.blocks;
  gridDim.y = 1;
  for (uint32_t first = 0; first < launch.blocks; first += launch.cluster_blocks) {
    Cluster running{.launch = launch,
                    .first_block = first,
                    .body = &body,
                    .blocks = std::vector<Block>(launch.cluster_blocks),
                    .threads = {},
                    .failure = {}};
    cluster = &running;
    AddThreads();
    RunToTheEnd();
    if (running.failure.empty()) CheckBarriers();
    if (!running.failure.empty()) return absl::StrCat("block ", first, ": ", running.failure);
  }
  return "";
}

Thread& Self() { return *self; }

char* SharedOf(uint32_t rank, uint32_t address, size_t bytes) {
  if (rank >= cluster->blocks.size()) Fail(absl::StrCat("there is no block ", rank));
  if (address < kSharedBegin || address - kSharedBegin + bytes > kSharedBytes)
    Fail(absl::StrCat("address ", address, " is none of shared memory"));
  if (address % bytes != 0) Fail(absl::StrCat("address ", address, " is odd for ", bytes));
  return &cluster->blocks[rank].memory[address - kSharedBegin];
}

char* Shared(uint32_t address, size_t bytes) { return SharedOf(self->rank, address, bytes); }

uint32_t AddressOf(const void* place) {
  const std::vector<char>& memory = cluster->blocks[self->rank].memory;
  const auto offset = reinterpret_cast<uintptr_t>(place) - reinterpret_cast<uintptr_t>(&memory[0]);
  if (offset >= memory.size()) Fail("a pointer into shared memory leads elsewhere");
  return kSharedBegin + static_cast<uint32_t>(offset);
}

void WaitUntil(const std::function<bool()>& ready) {
  while (!ready()) Yield();
  ++cluster->events;
}

void Meet(int name, int count) {
  Block::Meeting& meeting = cluster->blocks[self->rank].meetings[name];
  const uint32_t past = meeting.past;
  ++cluster->events;
  if (++meeting.here == count) {
    meeting.here = 0;
    ++meeting.past;
    return;
  }
  WaitUntil([&] { return meeting.past != past; });
}

void InitBarrier(uint32_t address, int count) {
  std::memset(Shared(address, sizeof(uint64_t)), kCanary, sizeof(uint64_t));
  cluster->blocks[self->rank].barriers[address] = {.count = count, .pending = count};
}

void ArriveAt(uint32_t rank, uint32_t address, int64_t expected_bytes) {
  Barrier& barrier = At(rank, address);
  barrier.bytes += expected_bytes;
  --barrier.pending;
  EndPhaseIfComplete(&barrier);
}

void CountBytes(uint32_t rank, uint32_t address, int64_t bytes) {
  Barrier& barrier = At(rank, address);
  barrier.bytes -= bytes;
  EndPhaseIfComplete(&barrier);
}

bool HasEnded(uint32_t address, uint32_t parity) {
  return At(self->rank, address).phase % 2 != parity;
}

void ClusterArrive() {
  ++self->cluster_arrivals;
  ++cluster->arrivals;
  ++cluster->events;
}

void ClusterWait() {
  const uint32_t threads = static_cast<uint32_t>(cluster->threads.size());
  WaitUntil([&] { return cluster->arrivals >= self->cluster_arrivals * threads; });
}

std::vector<uint32_t>& Board(uint32_t key, size_t words) {
  std::vector<uint32_t>& board = cluster->blocks[self->rank].boards[key];
  board.resize(words);
  ++cluster->events;
  return board;
}

void Fail(const std::string& message) {
  cluster->failure = absl::StrCat("thread ", self->index, ": ", message);
  setcontext(&scheduler);
  std::abort();
}

}  // namespace warpcall::emulated

using warpcall::emulated::kWarpThreads;

void __syncthreads() {
  using warpcall::emulated::cluster;
  warpcall::emulated::Meet(0, static_cast<int>(cluster->launch.threads));
}

void __syncwarp() {
  warpcall::emulated::Meet(1 + static_cast<int>(threadIdx.x) / kWarpThreads, kWarpThreads);
}

float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
