#include "kernels/check/truth.h"

#include <algorithm>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

// Work that pays for waking another thread: some 20 us of a product, 300 of softmax, whose
// exponentials count as one operation each.
constexpr int64_t kGrainFlops = 32 * 1024;

void FillSlice(const TruthSource& source, int64_t index, Truth* truth) {
  const SliceTruth part = SliceTruthOf(source, index);
  int64_t at = part.slice.first;
  for (size_t i = 0; i < part.values.size(); ++i, at += part.slice.stride) {
    truth->values[at] = part.values[i];
    truth->errors[at] = part.errors[i];
  }
}

}  // namespace

SliceTruth SliceTruthOf(const TruthSource& source, int64_t index) {
  const Definition& definition = *source.op.definition;
  SliceTruth truth{.slice = definition.slice(source.problem, index), .values = {}, .errors = {}};
  const Slice& slice = truth.slice;
  std::vector<double>& values = truth.values;
  WARPCALL_DCHECK(slice.first >= 0 && slice.stride > 0 && slice.count > 0, slice.first,
                  slice.stride, slice.count);
  values.reserve(static_cast<size_t>(slice.count));
  definition.evaluate(source.problem, source.inputs, index, [&](absl::Span<const double> more) {
    values.insert(values.end(), more.begin(), more.end());
  });
  truth.errors = source.cases.errors(source.problem, source.inputs, index, values);
  WARPCALL_CHECK(static_cast<int64_t>(values.size()) == slice.count, values.size(), slice.count);
  WARPCALL_CHECK(truth.errors.size() == values.size(), truth.errors.size(), values.size());
  return truth;
}

Truth TruthOf(const TruthSource& source, cpu::ThreadPool& pool) {
  Truth truth;
  FindTruth(source, pool, &truth);
  return truth;
}

void FindTruth(const TruthSource& source, cpu::ThreadPool& pool, Truth* truth) {
  WARPCALL_DCHECK(source.op.definition != nullptr, source.op.name);
  truth->spec = source.problem.outputs[0];
  const int64_t slices = source.op.definition->slices(source.problem);
  const size_t elements = slices == 0 ? 0 : static_cast<size_t>(truth->spec.elements());
  truth->values.resize(elements);
  truth->errors.resize(elements);
  if (slices == 0) return;
  const int64_t slice_flops = std::max<int64_t>(1, source.op.work(source.problem).flops / slices);
  pool.ParallelFor(slices, CeilDivide(kGrainFlops, slice_flops), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) FillSlice(source, index, truth);
  });
}

}  // namespace warpcall
