#include "server/tracing/tracer.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "proto/common/check.h"

namespace warpcall::tracing {
namespace {

// Seeded by the system's randomness for each thread. Ids need to differ, not to be secret.
std::mt19937_64& Random() {
  thread_local std::mt19937_64 random([] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }());
  return random;
}

template <typename Id>
Id NewId() {
  Id id{};
  while (std::all_of(id.begin(), id.end(), [](uint8_t byte) { return byte == 0; })) {
    for (size_t at = 0; at < id.size(); at += sizeof(uint64_t)) {
      const uint64_t bits = Random()();
      std::memcpy(id.data() + at, &bits, sizeof(bits));
    }
  }
  return id;
}

template <typename Id>
bool ReadHex(absl::string_view digits, Id* id) {
  if (digits.size() != 2 * id->size()) return false;
  const std::string bytes = absl::HexStringToBytes(digits);
  std::memcpy(id->data(), bytes.data(), id->size());
  return true;
}

}  // namespace

Tracer::Tracer(double ratio, size_t records_max) : ratio_(ratio), records_max_(records_max) {
  WARPCALL_DCHECK(ratio >= 0 && ratio <= 1, ratio);
  records_.reserve(records_max);
}

std::optional<Span> Tracer::Begin(const std::optional<Parent>& parent) {
  if (parent.has_value()) {
    WARPCALL_DCHECK(parent->trace_id != TraceId());
    if (!parent->sampled) return std::nullopt;
    return Span{parent->trace_id, NewSpanId(), parent->span_id};
  }
  if (std::uniform_real_distribution<double>(0, 1)(Random()) >= ratio_) return std::nullopt;
  return Span{NewId<TraceId>(), NewSpanId(), std::nullopt};
}

void Tracer::Add(Record record) {
  absl::MutexLock lock(&mutex_);
  if (records_.size() >= records_max_) {
    dropped_.fetch_add(1);
    return;
  }
  records_.push_back(std::move(record));
  WARPCALL_DCHECK(records_.size() <= records_max_, records_.size(), records_max_);
  if (records_.size() == awaited_) changed_.Signal();
}

std::vector<Record> Tracer::Take(size_t enough, absl::Duration timeout) {
  std::vector<Record> records;
  records.reserve(records_max_);  // so that Add never allocates
  const SteadyTime end = SteadyAfter(timeout);
  absl::MutexLock lock(&mutex_);
  awaited_ = enough;
  while (!stopped_ && records_.size() < enough)
    if (changed_.WaitUntil(&mutex_, end)) break;
  records.swap(records_);
  return records;
}

void Tracer::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.SignalAll();
}

bool Tracer::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

bool Tracer::AwaitStop(absl::Duration timeout) {
  const SteadyTime end = SteadyAfter(timeout);
  absl::MutexLock lock(&mutex_);
  awaited_ = records_max_ + 1;
  while (!stopped_)
    if (changed_.WaitUntil(&mutex_, end)) break;
  return stopped_;
}

SpanId NewSpanId() { return NewId<SpanId>(); }

bool FromHex(absl::string_view digits, TraceId* id) { return ReadHex(digits, id); }
bool FromHex(absl::string_view digits, SpanId* id) { return ReadHex(digits, id); }

}  // namespace warpcall::tracing
