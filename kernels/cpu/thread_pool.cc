#include "kernels/cpu/thread_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall::cpu {
namespace {

// More chunks than threads, so that a thread that the system took away for a while holds back
// little: the others take its share. 8 leave at most about an eighth of one thread's work to wait
// for.
constexpr int64_t kChunksPerThread = 8;

// Grains of a chunk between two checks of a stop flag: under 50 ms for grains of up to 1.5 ms,
// which only a slow machine with a mispredicted loop reaches.
constexpr int64_t kGrainsPerLook = 32;

// One ParallelFor, on its caller's stack. `next` hands out chunks; everything else is written
// before the job is published or guarded by the pool's mutex.
struct Job {
  Job(int64_t count_in, int64_t chunk_in, absl::FunctionRef<void(int64_t, int64_t)> body_in,
      const StopFlag* stop_in)
      : count(count_in),
        chunk(chunk_in),
        chunks(CeilDivide(count_in, chunk_in)),
        body(body_in),
        stop(stop_in) {}

  const int64_t count;
  const int64_t chunk;
  const int64_t chunks;
  const absl::FunctionRef<void(int64_t, int64_t)> body;
  const StopFlag* const stop;
  std::atomic<int64_t> next{0};
  int helpers = 0;  // threads other than the caller inside RunChunks; guarded by the pool's mutex
};

bool HasChunks(const Job& job) { return job.next.load(std::memory_order_relaxed) < job.chunks; }

// Runs chunks until none is left, or until `leave` is true before the next one.
template <typename Leave>
void RunChunks(Job& job, const Leave& leave) {
  // Relaxed is enough: the mutex that publishes the job and counts helpers out orders the body's
  // memory.
  while (!leave()) {
    const int64_t index = job.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= job.chunks) return;
    if (IsSet(job.stop)) return job.next.store(job.chunks, std::memory_order_relaxed);
    const int64_t begin = index * job.chunk;
    job.body(begin, std::min(job.chunk, job.count - begin) + begin);
  }
}

void RunAllChunks(Job& job) {
  RunChunks(job, [] { return false; });
}

}  // namespace

// Counts the threads that compute: `callers` that came by themselves, `brought` by guests, and
// `helpers` of the pool's own. Their sum stays within the pool's size, unless the callers alone
// exceed it. A caller beyond the size adds itself until another thread ends a chunk or a call.
struct ThreadPool::State {
  explicit State(int threads_in) : threads(threads_in) {}

  const int threads;  // the workers and a caller
  absl::Mutex mutex;
  absl::CondVar work_arrived;
  absl::CondVar helper_left;
  std::vector<Job*> jobs ABSL_GUARDED_BY(mutex);  // published, oldest first, rotated by joiners
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::thread> workers;  // written by the constructor only
  // Written under the mutex, read anywhere.
  std::atomic<int> callers{0};
  std::atomic<int> brought{0};
  std::atomic<int> helpers{0};

  // Threads that may join those that are here; less than none where there are too many.
  int Room() const { return threads - callers - brought - helpers; }

  void Come(int with) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    ++callers;
    brought += with;
  }

  void Go(int with) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    WARPCALL_DCHECK(callers > 0 && with >= 0 && brought >= with, callers.load(), brought.load(),
                    with);
    --callers;
    brought -= with;
    if (Room() > 0 && FirstWithChunks() != jobs.end()) work_arrived.SignalAll();
  }

  std::vector<Job*>::iterator FirstWithChunks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return std::find_if(jobs.begin(), jobs.end(), [](const Job* job) { return HasChunks(*job); });
  }

  // The first job with chunks left, moved to the back so that concurrent callers share the workers.
  Job* TakeJob() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (Room() <= 0) return nullptr;
    const auto found = FirstWithChunks();
    if (found == jobs.end()) return nullptr;
    Job* const job = *found;
    std::rotate(found, found + 1, jobs.end());
    return job;
  }

  void Work() {
    absl::MutexLock lock(&mutex);
    while (!stopping) {
      Job* const job = TakeJob();
      if (job == nullptr) {
        work_arrived.Wait(&mutex);
        continue;
      }
      ++job->helpers;
      ++helpers;
      mutex.Unlock();
      RunChunks(*job, [this] { return Room() < 0; });
      mutex.Lock();
      --helpers;
      if (--job->helpers == 0) helper_left.SignalAll();
    }
  }
};

void LowerPriority(int nice) {
  // Linux gives each thread a nice value of its own.
  const auto thread = static_cast<id_t>(gettid());
  if (nice > getpriority(PRIO_PROCESS, thread)) setpriority(PRIO_PROCESS, thread, nice);
}

ThreadPool::ThreadPool(int threads, int nice)
    : state_(std::make_unique<State>(std::max(1, threads))) {
  WARPCALL_DCHECK(nice >= 0 && nice <= 19, nice);
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), nice] {
      LowerPriority(nice);
      state->Work();
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&state_->mutex);
    WARPCALL_DCHECK(state_->jobs.empty() && state_->callers == 0, state_->callers.load());
    state_->stopping = true;
    state_->work_arrived.SignalAll();
  }
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return state_->threads; }

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             absl::FunctionRef<void(int64_t, int64_t)> body, const StopFlag* stop) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (count <= grain || (threads() == 1 && stop == nullptr)) return body(0, count);

  const int64_t grains = CeilDivide(count, grain);
  int64_t grains_per_chunk = CeilDivide(grains, threads() * kChunksPerThread);
  if (stop != nullptr)
    grains_per_chunk = std::min(grains_per_chunk, grain == 1 ? 1 : kGrainsPerLook);
  Job job(count, grains_per_chunk * grain, body, stop);
  if (threads() == 1) return RunAllChunks(job);
  {
    absl::MutexLock lock(&state_->mutex);
    state_->Come(0);
    state_->jobs.push_back(&job);
    const int64_t wanted = std::min<int64_t>(state_->Room(), job.chunks - 1);
    for (int64_t i = 0; i < wanted; ++i) state_->work_arrived.Signal();
  }
  RunAllChunks(job);
  absl::MutexLock lock(&state_->mutex);
  state_->jobs.erase(std::find(state_->jobs.begin(), state_->jobs.end(), &job));
  while (job.helpers > 0) state_->helper_left.Wait(&state_->mutex);
  state_->Go(0);
}

ThreadPool::Guest::Guest(ThreadPool* pool, const Wish& wish) : pool_(pool) {
  WARPCALL_DCHECK(wish.min >= 1 && wish.max >= wish.min, wish.min, wish.max);
  State& state = *pool_->state_;
  absl::MutexLock lock(&state.mutex);
  const int callers = state.callers + 1;
  const int share = state.threads / callers;
  const int left = state.threads - callers - state.brought;
  threads_ = std::max(wish.min, std::min({wish.max, share, left + 1}));
  state.Come(threads_ - 1);
}

ThreadPool::Guest::~Guest() {
  State& state = *pool_->state_;
  absl::MutexLock lock(&state.mutex);
  state.Go(threads_ - 1);
}

}  // namespace warpcall::cpu
