#include "kernels/compiled/cubins.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kernels/compiled/sha256.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

// Each with its source.
constexpr size_t kRefusalsMax = 32;

absl::Status GivenUp() {
  return absl::CancelledError("the request stopped waiting for the compilation");
}

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Cubins::Options WithClock(Cubins::Options options) {
  if (options.now_ns == nullptr) options.now_ns = SteadyNs;
  return options;
}

int64_t BytesOf(const Cubin& cubin) {
  return static_cast<int64_t>(cubin.source().size() + cubin.image().size());
}

// The lengths keep one text's end from being the next one's beginning.
Sha256 KeyOf(absl::string_view compiler, const Program& program) {
  return Sha256Of(absl::StrCat(compiler.size(), ":", compiler, program.entry.size(), ":",
                               program.entry, program.source));
}

}  // namespace

struct Cubins::Flight {
  absl::Notification done;
  absl::StatusOr<CubinPtr> made;  // once it is done
};

Cubins::Cubins(Options options)
    : options_(WithClock(std::move(options))), refusals_(kRefusalsMax), threads_(options_.threads) {
  WARPCALL_DCHECK(options_.compile != nullptr);
}

Cubins::~Cubins() = default;

absl::StatusOr<CubinPtr> Cubins::Get(const Program& program, const StopFlag* stop) {
  if (program.source.size() > kSourceBytesMax)
    return absl::UnimplementedError(absl::StrCat("the source of ", program.entry, " has ",
                                                 program.source.size(), " bytes; the limit is ",
                                                 kSourceBytesMax));
  for (bool is_first = true;; is_first = false) {
    std::shared_ptr<Flight> flight;
    bool leads = false;
    {
      absl::MutexLock lock(&mutex_);
      if (std::optional<absl::StatusOr<CubinPtr>> found = Find(program); found.has_value()) {
        if (is_first) ++counts_[Counts::kMemoryHits];
        return *std::move(found);
      }
      if (is_first) ++counts_[Counts::kMemoryMisses];
      std::shared_ptr<Flight>& known = flights_[program];
      leads = known == nullptr;
      if (leads) known = std::make_shared<Flight>();
      flight = known;
    }
    if (leads) return Lead(flight.get(), program, stop);
    if (!AwaitUnlessStopped(flight->done, stop)) return GivenUp();
    // The leading thread may have been stopped, which is no reason for the others to fail.
    if (!absl::IsCancelled(flight->made.status())) return flight->made;
  }
}

absl::StatusOr<CubinPtr> Cubins::Lead(Flight* flight, const Program& program,
                                      const StopFlag* stop) {
  flight->made = Make(program, stop);
  List gone;  // destroyed when the lock is given back
  {
    absl::MutexLock lock(&mutex_);
    Keep(program, flight->made, &gone);
    flights_.erase(program);
  }
  WARPCALL_DCHECK(!flight->done.HasBeenNotified());
  flight->done.Notify();
  return flight->made;
}

std::optional<absl::StatusOr<CubinPtr>> Cubins::Find(const Program& program) {
  if (const auto found = index_.find(&program); found != index_.end()) {
    cubins_.splice(cubins_.begin(), cubins_, found->second);
    return *found->second;
  }
  const Refusal* const refusal = refusals_.Find(program);
  if (refusal == nullptr || refusal->until_ns <= options_.now_ns()) return std::nullopt;
  return refusal->status;
}

absl::StatusOr<CubinPtr> Cubins::Make(const Program& program, const StopFlag* stop) {
  Sha256 key = {};
  if (options_.disk.has_value()) {
    key = KeyOf(options_.compiler, program);
    const std::optional<std::string> image = options_.disk->Get(key);
    Count(image.has_value() ? Counts::kDiskHits : Counts::kDiskMisses);
    if (image.has_value()) {
      absl::StatusOr<CubinPtr> loaded = Load(program, *image);
      // INTERNAL: the device rejects the stored code, and a new compilation may succeed.
      if (!absl::IsInternal(loaded.status())) return loaded;
    }
  }
  ASSIGN_OR_RETURN(const std::string image, Compile(program, stop));
  ASSIGN_OR_RETURN(CubinPtr loaded, Load(program, image));
  if (options_.disk.has_value()) options_.disk->Put(key, image);
  return loaded;
}

absl::StatusOr<std::string> Cubins::Compile(const Program& program, const StopFlag* stop) {
  // Owned by the task, which may still run when no thread waits any more.
  const auto image = std::make_shared<absl::StatusOr<std::string>>();
  const auto compile = [this, image, source = program.source] {
    const int64_t start_ns = options_.now_ns();
    *image = options_.compile(source);
    const int64_t ns = options_.now_ns() - start_ns;
    absl::MutexLock lock(&mutex_);
    ++counts_.compilations[static_cast<size_t>(BucketOf(ns))];
    counts_[Counts::kCompileNs] += ns;
  };
  if (!threads_.Run(compile, stop)) return GivenUp();
  return *image;
}

absl::StatusOr<CubinPtr> Cubins::Load(const Program& program, const std::string& image) const {
  if (options_.load != nullptr) return options_.load(program, image);
  return std::make_shared<const Cubin>(program, image);
}

void Cubins::Keep(const Program& program, const absl::StatusOr<CubinPtr>& made, List* gone) {
  if (made.ok()) {
    cubins_.push_front(*made);
    index_.emplace(&(*made)->program(), cubins_.begin());
    counts_[Counts::kMemoryBytes] += BytesOf(**made);
    MakeRoom(gone);
  } else if (absl::IsInternal(made.status()) || absl::IsUnimplemented(made.status())) {
    refusals_.Insert(program, {made.status(), options_.now_ns() + options_.refusal_ns});
  }
}

void Cubins::MakeRoom(List* gone) {
  const auto bytes_max = static_cast<int64_t>(options_.bytes_max);
  auto at = cubins_.end();
  while (at != cubins_.begin() &&
         (cubins_.size() > options_.cubins_max || counts_[Counts::kMemoryBytes] > bytes_max)) {
    const auto oldest = std::prev(at);
    // While the lock is held, no thread can get a cubin that only this list holds.
    if (oldest->use_count() > 1) {
      at = oldest;
      continue;
    }
    counts_[Counts::kMemoryBytes] -= BytesOf(**oldest);
    index_.erase(&(*oldest)->program());
    gone->splice(gone->begin(), cubins_, oldest);
  }
  WARPCALL_DCHECK(index_.size() == cubins_.size(), index_.size(), cubins_.size());
  WARPCALL_DCHECK(counts_[Counts::kMemoryBytes] >= 0, counts_[Counts::kMemoryBytes]);
}

void Cubins::Count(Counts::Field field) {
  absl::MutexLock lock(&mutex_);
  ++counts_[field];
}

Counts Cubins::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace warpcall::compiled
