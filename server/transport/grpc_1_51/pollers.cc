#include "server/transport/grpc_1_51/pollers.h"

#include <dirent.h>
#include <grpc/support/cpu.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/version_info.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall {
namespace {

constexpr char kThreadName[] = "nexting_thread";
constexpr absl::Duration kCountTimeout = absl::Seconds(1);
constexpr absl::Duration kCountPause = absl::Milliseconds(1);

// As many as gRPC starts for callbacks; 0 where that is not known.
int ThreadsOfGrpc() {
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51 && !defined(__SANITIZE_THREAD__)
  return std::clamp(static_cast<int>(gpr_cpu_num_cores()) / 2, 2, 16);
#else
  return 0;
#endif
}

// Those of this process that go by gRPC's name for them.
int CountThreads() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return 0;
  while (const dirent* entry = readdir(folder)) {
    std::ifstream file(absl::StrCat("/proc/self/task/", entry->d_name, "/comm"));
    std::string name;
    if (std::getline(file, name) && name == kThreadName) ++count;
  }
  closedir(folder);
  return count;
}

}  // namespace

// One that ends at once, for want of credentials.
struct Pollers::Call {
  grpc::ClientContext context;
  grpc::ByteBuffer request{nullptr, 0};
  grpc::ByteBuffer response;
};

Pollers::Pollers(int few, Clock clock)
    : few_(few),
      clock_(std::move(clock)),
      nowhere_(grpc::CreateChannel("nowhere", nullptr)),
      last_large_ns_(clock_()) {}

Pollers::~Pollers() {
  LetGo();
  absl::MutexLock lock(&mutex_);
  closing_ = true;
  while (calls_ > 0) gone_.Wait(&mutex_);
}

void Pollers::Begin() {
  const int wanted = ThreadsOfGrpc();
  if (few_ == 0 || wanted <= few_) return;
  // They take their names when they run first.
  int found = CountThreads();
  for (const absl::Time end = absl::Now() + kCountTimeout; found < wanted && absl::Now() < end;
       found = CountThreads())
    absl::SleepFor(kCountPause);
  spare_.store(std::min(wanted, found) - few_);
}

void Pollers::Observe(int64_t bytes) {
  if (spare_.load(std::memory_order_relaxed) <= 0) return;
  const int64_t now_ns = clock_();
  if (bytes >= kLargeBytes) {
    last_large_ns_.store(now_ns, std::memory_order_relaxed);
    if (has_parked_.load()) LetGo();
  } else if (!has_parked_.load() &&
             now_ns - last_large_ns_.load(std::memory_order_relaxed) >= kCalmNs) {
    Park();
  }
}

int Pollers::parked() const {
  absl::MutexLock lock(&mutex_);
  return parked_;
}

void Pollers::Park() {
  const int spare = spare_.load();
  int64_t round;
  {
    absl::MutexLock lock(&mutex_);
    // Some released threads may not be back; parking more now would park too many at once.
    if (closing_ || has_parked_.load() || calls_ > 0) return;
    has_parked_.store(true);
    calls_ = spare;
    round = round_;
  }
  for (int i = 0; i < spare; ++i) {
    auto* const call = new Call;
    nowhere_.UnaryCall(&call->context, "/nowhere", {}, &call->request, &call->response,
                       [this, call, round](const grpc::Status&) {
                         delete call;
                         Stay(round);
                       });
  }
}

void Pollers::LetGo() {
  absl::MutexLock lock(&mutex_);
  has_parked_.store(false);
  ++round_;
  let_go_.SignalAll();
}

void Pollers::Stay(int64_t round) {
  absl::MutexLock lock(&mutex_);
  ++parked_;
  while (round == round_) let_go_.Wait(&mutex_);
  --parked_;
  if (--calls_ == 0) gone_.Signal();
}

}  // namespace warpcall
