// Random inputs for measuring: N(0, 1), because hardware runs faster on zeros than on data.
#pragma once

#include <cstdint>

#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"

namespace warpcall::inspect {

// A sequence of independent normal values, rounded to a data type. Element i depends only on the
// seed, the number of the input and i. So any thread can make any part of it, and its bits are
// equal on all machines with IEEE arithmetic. The largest value is 6.6.
class NormalSequence {
 public:
  NormalSequence(uint64_t seed, int input);

  // Writes elements first .. first + count - 1 to data[0 .. count - 1].
  void Write(DataType data_type, int64_t first, int64_t count, void* data) const;

 private:
  uint64_t key_;
};

// Writes the first elements of the sequence, as many as `spec` has, on all threads of the pool.
void Fill(const TensorSpec& spec, const NormalSequence& sequence, cpu::ThreadPool& pool,
          void* data);

}  // namespace warpcall::inspect
