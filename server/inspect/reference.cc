#include "server/inspect/reference.h"

#include <algorithm>
#include <cmath>

#include "kernels/check/compare.h"
#include "kernels/common/round.h"
#include "kernels/common/saturate.h"
#include "proto/common/dispatch.h"
#include "server/engine/clock.h"

namespace warpcall::inspect {
namespace {

// Slices that are timed first, to find the affordable number, and their share of the time.
constexpr int64_t kTrialSlices = 4;
constexpr int64_t kCountingShare = 8;
constexpr int64_t kGrainElements = 4096;

// A copy over PCIe takes some 10 us to begin, enough to copy 100 KiB and more.
constexpr size_t kGapBytes = size_t{128} << 10;

// Number i of `count` indices spread over [0, total), the first and the last included.
int64_t Spread(int64_t i, int64_t count, int64_t total) {
  if (count == 1) return 0;
  const int64_t quotient = (total - 1) / (count - 1);
  const int64_t remainder = (total - 1) % (count - 1);
  return i * quotient + i * remainder / (count - 1);
}

// The number of `slices` that the pool evaluates in ns_max.
int64_t Affordable(const Reference::Source& source, int64_t slices, int64_t ns_max, int threads) {
  const Definition& definition = *source.op->definition;
  const int64_t trials = std::min(slices, kTrialSlices);
  const bool bounds = source.cases != nullptr &&
                      definition.slice(*source.problem, 0).count <= Reference::kElementsMax;
  const int64_t start_ns = MonotonicNs();
  int64_t spent_ns = 0;
  int64_t done = 0;
  while (done < trials && spent_ns < ns_max / kCountingShare) {
    const int64_t index = Spread(done, trials, slices);
    std::vector<double> values;
    definition.evaluate(*source.problem, *source.inputs, index, [&](absl::Span<const double> more) {
      if (bounds) values.insert(values.end(), more.begin(), more.end());
    });
    if (bounds) source.cases->errors(*source.problem, *source.inputs, index, values);
    ++done;
    spent_ns = MonotonicNs() - start_ns;
  }
  const int64_t slice_ns = std::max<int64_t>(1, spent_ns / std::max<int64_t>(1, done));
  return SaturatingMultiply(std::max<int64_t>(0, ns_max - spent_ns) / slice_ns, threads);
}

// Sums of squares, and the largest error.
struct Sums {
  double difference = 0;
  double reference = 0;
  double max = 0;
};

template <typename T>
void Add(double expected, T actual, Sums* sums) {
  const double value = ToFloat(actual);
  const double rounded = ToFloat(FromDouble<T>(expected));
  if (std::isfinite(rounded)) {
    sums->difference += (value - expected) * (value - expected);
    sums->reference += expected * expected;
  } else if (std::isnan(value) != std::isnan(rounded)) {
    sums->difference = NAN;
  } else if (std::isinf(rounded) && value != rounded) {
    sums->difference += INFINITY;
  }
}

}  // namespace

Reference::Reference(const Source& source, int64_t ns_max, cpu::ThreadPool* pool)
    : pool_(pool), data_type_(source.problem->outputs[0].data_type) {
  const Definition* const definition = source.op->definition;
  const int64_t slices = definition == nullptr ? 0 : definition->slices(*source.problem);
  if (slices == 0) return;
  const int64_t longest = definition->slice(*source.problem, 0).count;
  int64_t count = std::min({slices, kSlicesMax, kElementsMax / longest});
  if (count > 1) count = std::min(count, Affordable(source, slices, ns_max, pool->threads()));
  Choose(source, slices, std::max<int64_t>(1, count));
  RecordRanges();
  pool->ParallelFor(static_cast<int64_t>(parts_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) Evaluate(source, parts_[i]);
  });
}

void Reference::Choose(const Source& source, int64_t slices, int64_t count) {
  parts_.reserve(count);
  size_t values = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = Spread(i, count, slices);
    Slice kept = source.op->definition->slice(*source.problem, index);
    const int64_t step = CeilDivide(kept.count, kElementsMax);
    kept.stride *= step;
    kept.count = CeilDivide(kept.count, step);
    parts_.push_back({.index = index, .kept = kept, .step = step, .at = values});
    values += static_cast<size_t>(kept.count);
  }
  values_.resize(values);
  const bool whole =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.step == 1; });
  if (source.cases != nullptr && whole) bounds_.resize(values);
}

void Reference::RecordRanges() {
  std::vector<ElementRange> all;
  all.reserve(parts_.size());
  for (const Part& part : parts_)
    all.push_back(
        {part.kept.first, part.kept.first + (part.kept.count - 1) * part.kept.stride + 1});
  std::sort(all.begin(), all.end(),
            [](const ElementRange& a, const ElementRange& b) { return a.first < b.first; });
  const auto gap = static_cast<int64_t>(kGapBytes / ElementBytes(data_type_));
  for (const ElementRange& range : all) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + gap)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
  }
}

void Reference::Evaluate(const Source& source, const Part& part) {
  double* out = values_.data() + part.at;
  int64_t next = 0;  // next element to keep, counted from the current piece
  source.op->definition->evaluate(*source.problem, *source.inputs, part.index,
                                  [&](absl::Span<const double> values) {
                                    const auto count = static_cast<int64_t>(values.size());
                                    for (; next < count; next += part.step) *out++ = values[next];
                                    next -= count;
                                  });
  if (bounds_.empty()) return;
  const absl::Span<const double> values(values_.data() + part.at,
                                        static_cast<size_t>(part.kept.count));
  Bound* bound = bounds_.data() + part.at;
  for (const ElementError& error :
       source.cases->errors(*source.problem, *source.inputs, part.index, values))
    *bound++ = {static_cast<float>(error.arithmetic), static_cast<float>(error.subnormal_inputs)};
}

OutputError Reference::Compare(const void* output, const Allowance& allowance) const {
  if (parts_.empty()) return {};
  const Tolerance tolerance = {data_type_, allowance};
  std::vector<Sums> sums(
      parts_.size());  // summed in order, so that equal outputs have equal errors
  const int64_t grain = CeilDivide(kGrainElements, parts_[0].kept.count);
  DispatchDataType(data_type_, [&]<typename T>(T) {
    pool_->ParallelFor(static_cast<int64_t>(parts_.size()), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Part& part = parts_[i];
        const T* const out = static_cast<const T*>(output) + part.kept.first;
        for (int64_t j = 0; j < part.kept.count; ++j) {
          const size_t at = part.at + static_cast<size_t>(j);
          Add(values_[at], out[j * part.kept.stride], &sums[i]);
          if (bounds_.empty()) continue;
          const ElementError error = {bounds_[at].arithmetic, bounds_[at].subnormal_inputs};
          sums[i].max = std::max(sums[i].max, OfBound(ToFloat(out[j * part.kept.stride]),
                                                      values_[at], error, tolerance));
        }
      }
    });
  });
  Sums total;
  for (const Sums& part : sums) {
    total.difference += part.difference;
    total.reference += part.reference;
    total.max = std::max(total.max, part.max);
  }
  const double difference = std::sqrt(total.difference);
  return {.relative = total.reference > 0 ? difference / std::sqrt(total.reference) : difference,
          .elements = static_cast<int64_t>(values_.size()),
          .max = total.max};
}

}  // namespace warpcall::inspect
