// The exact output of a problem by its definition, as much as time permits, and an output's
// distance from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/check/cases.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "server/inspect/operand_sets.h"

namespace warpcall::inspect {

struct OutputError {
  // |out - ref| / |ref|, Euclidean; |out - ref| where |ref| is 0. An element that is infinite or
  // NaN after rounding to the data type must be so in the output, too: then it counts as equal.
  // Otherwise the error is infinite or NaN.
  double relative = 0;
  int64_t elements = 0;  // compared
  // The largest error of an element in units of its bound, as in conformance: at most 1 for a right
  // output; infinite if a special value is wrong. 0 if the op has no bounds, or only for slices
  // that are too long to be kept whole.
  double max = 0;
};

class Reference {
 public:
  struct Source {
    const Op* op = nullptr;
    const Problem* problem = nullptr;
    const Operands* inputs = nullptr;  // in host memory, during the constructor
    const OpCases* cases = nullptr;    // the op's, during the constructor; null: no bounds
  };
  static constexpr int64_t kSlicesMax = int64_t{1} << 20;
  static constexpr int64_t kElementsMax = int64_t{1} << 24;  // 128 MiB of values

  // Evaluates slices of output 0 spread evenly over it: as many as the pool is expected to finish
  // in ns_max, at least one, within the limits above (of one slice with more elements every second,
  // third, ...). None if the op has no definition.
  Reference(const Source& source, int64_t ns_max, cpu::ThreadPool* pool);

  // The ranges that Compare reads, in order; close ones are merged.
  const std::vector<ElementRange>& ranges() const { return ranges_; }

  // `allowance` is that of the row that computed it.
  OutputError Compare(const void* output, const Allowance& allowance = {}) const;

 private:
  struct Part {
    int64_t index;  // the slice's
    Slice kept;     // elements of the slice
    int64_t step;   // between kept elements, in the slice
    size_t at;      // where their values begin
  };

  // An ElementError, in half the memory.
  struct Bound {
    float arithmetic = 0;
    float subnormal_inputs = 0;
  };

  void Choose(const Source& source, int64_t slices, int64_t count);
  void RecordRanges();
  void Evaluate(const Source& source, const Part& part);

  cpu::ThreadPool* const pool_;
  const DataType data_type_;
  std::vector<Part> parts_;
  std::vector<ElementRange> ranges_;
  std::vector<double> values_;
  std::vector<Bound> bounds_;  // the values' bounds, if there are any
};

}  // namespace warpcall::inspect
