// Describes a matmul problem as calls of cuBLASLt: pure arithmetic on sizes and strides.
//
// cuBLASLt's matrices are column-major. A row-major matrix is its own transpose there, so a call
// computes c^T = b^T a^T instead of c = a b: its first operand is our b, its second our a, and its
// m is our n.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace warpcall::matmul {

// A column-major matrix as it lies in memory, before the call transposes it.
struct CublasLtMatrix {
  DataType data_type;  // c may be float32 where a and b are not
  int64_t rows;
  int64_t columns;
  int64_t leading_dimension;  // elements between columns
  bool transpose;
  int64_t batch_stride;     // elements; 0: all batches share one matrix
  int32_t alignment_bytes;  // every batch's matrix has it: a power of two, at most 256
};

// One cublasLtMatmul, of `batch_count` multiplications.
struct CublasLtCall {
  bool tf32;
  int64_t batch_count;
  CublasLtMatrix first;   // b
  CublasLtMatrix second;  // a
  CublasLtMatrix output;  // c
};

// A problem is the same call once per batch of `outer`, which gives the offsets.
struct CublasLtCalls {
  CublasLtCall call;
  Shape outer;
};

// The longest batch dimension goes into the call, the others are looped over. REQUIRES: the output
// has elements and k > 0.
CublasLtCalls MakeCublasLtCalls(const Problem& problem);

}  // namespace warpcall::matmul
