// Kernels that were compiled elsewhere: how each is launched, which problems it takes, and the
// place of its machine code. compile.py writes the manifest as JSON:
//   format        1
//   unavailable   in place of kernels: why there are none
//   kernels       in the order in which each op's variants are numbered, each with
//     op, data_type, variant    the variant's name, distinct within op and data type
//     tile, traits              what rows choose by: names and values
//     arguments                 the kernel's parameters: name; type, pointer, i32, i64 or fp32;
//                               divisible_by, which must divide the integer, or the address
//     constants, given          more names for expressions: with their values; from the row
//     grid, requires            expressions: blocks in x, y and z; conditions
//     images                    the same compiled for architectures: entry, threads, shared_bytes
//                               (dynamic), parameter_bytes with hidden ones, scratch_bytes, offset
//                               and bytes of the cubin
//   choices       op, data_type, sizes, tile: the tile that was fastest for such a problem
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/manifest/integer_expression.h"
#include "proto/common/data_type.h"

namespace warpcall::triton {

struct Argument {
  enum class Type : uint8_t { kPointer, kInt32, kInt64, kFloat32 };

  std::string name;
  Type type = Type::kPointer;
  int64_t divisible_by = 1;
};

// True for arguments that expressions may name.
inline bool IsInteger(const Argument& argument) {
  return argument.type == Argument::Type::kInt32 || argument.type == Argument::Type::kInt64;
}

// One kernel's machine code for one architecture.
struct Image {
  int32_t architecture = 0;  // 90 for compute capability 9.0
  std::string entry;
  int32_t threads = 0;      // per block, in x
  size_t shared_bytes = 0;  // dynamic, per block
  // Sizes of all parameters: the kernel's arguments, then up to kHiddenMax addresses of scratch
  // memory. None of these kernels needs scratch memory, so those addresses are null.
  std::vector<size_t> parameter_bytes;
  absl::string_view cubin;
};
inline constexpr size_t kHiddenMax = 2;

struct CompiledKernel {
  std::string variant;
  std::string tile;
  std::vector<std::pair<std::string, std::string>> traits;
  std::vector<Argument> arguments;
  std::vector<std::pair<std::string, int64_t>> constants;
  std::vector<std::string> given;
  std::vector<manifest::IntegerExpression> grid;  // 1 to 3
  std::vector<manifest::IntegerExpression> requirements;
  std::vector<Image> images;
};

// The tile whose kernels were fastest for a problem of these sizes.
struct Choice {
  std::vector<int64_t> sizes;  // none of them 0
  std::string tile;
};

// An op's kernels in one data type. A variant's number is its index.
struct KernelSet {
  std::string op;
  DataType data_type = DataType::kFloat32;
  std::vector<CompiledKernel> kernels;
  std::vector<Choice> choices;
};

struct Manifest {
  std::string unavailable;  // empty unless there are no kernels
  std::vector<KernelSet> sets;

  // Null if there is none.
  const KernelSet* Find(absl::string_view op, DataType data_type) const;
};

// Reads a manifest, which refers to `cubins`. INVALID_ARGUMENT names the member that is missing, of
// the wrong type or out of bounds. Checks of each cubin only that it is whole.
absl::StatusOr<Manifest> ReadManifest(absl::string_view json, absl::string_view cubins);

}  // namespace warpcall::triton
