// oneDNN's matmul primitive, executed once per batch that it cannot walk by itself.
#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/half.h"
#include "kernels/common/status_macros.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"

namespace warpcall::matmul {
namespace {

using dnnl::memory;

struct Plan {
  dnnl::engine engine;
  dnnl::matmul::primitive_desc descriptor;
  Shape outer;  // batch holds what is looped over; the fastest batch dimension went into the
                // primitive
};

// oneDNN 2.6 gets batches of bfloat16 with b transposed and n from 49 to 63 wrong on processors
// with AMX (seen on a Xeon of the Sapphire Rapids kind, every time); single products it gets right.
bool TakesBatches(const Shape& shape, DataType type) {
  return type != DataType::kBFloat16 || shape.b_column_stride == 1;
}

// REQUIRES: `problem` has output elements and k > 0. Throws dnnl::error.
absl::StatusOr<Plan> MakePlan(const Problem& problem) {
  Shape shape = DecodeShape(problem);
  const memory::data_type type = onednn::ToOnednn(problem.outputs[0].data_type);
  memory::dims a_dims = {shape.m, shape.k};
  memory::dims b_dims = {shape.k, shape.n};
  memory::dims c_dims = {shape.m, shape.n};
  memory::dims a_strides = {shape.a_row_stride, shape.a_column_stride};
  memory::dims b_strides = {shape.b_row_stride, shape.b_column_stride};
  memory::dims c_strides = {shape.n, 1};
  if (!shape.batch.empty() && TakesBatches(shape, problem.outputs[0].data_type)) {
    const BatchDim inner = shape.batch.back();
    shape.batch.pop_back();
    a_dims.insert(a_dims.begin(), inner.a_stride == 0 ? 1 : inner.size);
    b_dims.insert(b_dims.begin(), inner.b_stride == 0 ? 1 : inner.size);
    c_dims.insert(c_dims.begin(), inner.size);
    a_strides.insert(a_strides.begin(), shape.m * shape.k);
    b_strides.insert(b_strides.begin(), shape.k * shape.n);
    c_strides.insert(c_strides.begin(), inner.c_stride);
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  Plan plan{.engine = onednn::CpuEngine(), .descriptor = {}, .outer = shape};
  plan.descriptor =
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(memory::desc(a_dims, type, a_strides),
                                                      memory::desc(b_dims, type, b_strides),
                                                      memory::desc(c_dims, type, c_strides)),
                                   attributes, plan.engine, /*allow_empty=*/true);
  if (!plan.descriptor)
    return absl::UnimplementedError(absl::StrCat(
        "oneDNN ", dnnl::version()->major, ".", dnnl::version()->minor, " has no ",
        DataTypeName(problem.outputs[0].data_type), " matmul of this form for this processor"));
  return plan;
}

// Whether there is nothing to ask oneDNN for.
bool NothingToSum(const Problem& problem) {
  return problem.outputs[0].elements() == 0 || DecodeShape(problem).k == 0;
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (NothingToSum(problem)) return absl::OkStatus();
  absl::Status status;
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kUnimplemented, "matmul",
                                [&] { status = MakePlan(problem).status(); }));
  return status;
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties&) {
  if (NothingToSum(problem)) return 0;
  size_t bytes = 0;  // also where Supports refuses
  onednn::Guard(absl::StatusCode::kInternal, "matmul", [&] {
    const absl::StatusOr<Plan> plan = MakePlan(problem);
    if (plan.ok()) bytes = plan->descriptor.scratchpad_desc().get_size();
  }).IgnoreError();
  return bytes;
}

bool IsNan(BFloat16 value) { return (value.bits & 0x7FFF) > 0x7F80; }

bool HasSubnormal(const void* data, int64_t count) {
  const auto* begin = static_cast<const BFloat16*>(data);
  return std::any_of(begin, begin + count, [](BFloat16 value) {
    return (value.bits & 0x7F80) == 0 && (value.bits & 0x007F) != 0;
  });
}

// The processor's bfloat16 dot products (AVX512_BF16, AMX) take subnormal inputs as zero, whatever
// the control register says (Intel SDM, VDPBF16PS). That costs a finite sum less than its
// tolerance, but makes NaN of a subnormal x infinity. Only then, which a scan of the output and the
// inputs tells, the outputs in question are summed again.
void RestoreInfinities(const Problem& problem, const Operands& operands, cpu::ThreadPool& pool) {
  auto* c = static_cast<BFloat16*>(operands.outputs[0]);
  if (std::none_of(c, c + problem.outputs[0].elements(), IsNan)) return;
  if (!HasSubnormal(operands.inputs[0], problem.inputs[0].elements()) &&
      !HasSubnormal(operands.inputs[1], problem.inputs[1].elements()))
    return;
  const Shape shape = DecodeShape(problem);
  const auto sum_again = [&](int64_t index) {
    const Offsets at = shape.BatchOffsets(index / shape.m);
    const int64_t i = index % shape.m;
    const auto* a =
        static_cast<const BFloat16*>(operands.inputs[0]) + at.a + i * shape.a_row_stride;
    for (int64_t j = 0; j < shape.n; ++j) {
      BFloat16& output = c[at.c + i * shape.n + j];
      if (!IsNan(output)) continue;
      const auto* b =
          static_cast<const BFloat16*>(operands.inputs[1]) + at.b + j * shape.b_column_stride;
      float sum = 0;
      for (int64_t p = 0; p < shape.k && sum == sum; ++p)
        sum += ToFloat(a[p * shape.a_column_stride]) * ToFloat(b[p * shape.b_row_stride]);
      output = FromFloat<BFloat16>(sum);
    }
  };
  pool.ParallelFor(shape.batches() * shape.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) sum_again(index);
  });
}

// Throws dnnl::error.
absl::Status Execute(const Problem& problem, const Operands& operands, void* workspace) {
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(problem));
  const dnnl::matmul primitive(plan.descriptor);
  dnnl::stream stream(plan.engine);
  const size_t element_bytes = ElementBytes(problem.outputs[0].data_type);
  const auto at = [&](const void* base, int64_t elements) {
    return static_cast<char*>(const_cast<void*>(base)) + elements * element_bytes;
  };
  memory a(plan.descriptor.src_desc(), plan.engine, nullptr);
  memory b(plan.descriptor.weights_desc(), plan.engine, nullptr);
  memory c(plan.descriptor.dst_desc(), plan.engine, nullptr);
  const memory scratchpad(plan.descriptor.scratchpad_desc(), plan.engine, workspace);
  for (int64_t batch = 0; batch < plan.outer.batches(); ++batch) {
    const Offsets offsets = plan.outer.BatchOffsets(batch);
    a.set_data_handle(at(operands.inputs[0], offsets.a));
    b.set_data_handle(at(operands.inputs[1], offsets.b));
    c.set_data_handle(at(operands.outputs[0], offsets.c));
    primitive.execute(stream, {{DNNL_ARG_SRC, a},
                               {DNNL_ARG_WEIGHTS, b},
                               {DNNL_ARG_DST, c},
                               {DNNL_ARG_SCRATCHPAD, scratchpad}});
  }
  stream.wait();
  return absl::OkStatus();
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (FinishIfNothingToSum(problem, operands)) return absl::OkStatus();
  absl::Status status;
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kInternal, "matmul",
                                [&] { status = Execute(problem, operands, context.workspace); }));
  RETURN_IF_ERROR(status);
  if (problem.outputs[0].data_type == DataType::kBFloat16)
    RestoreInfinities(problem, operands, cpu::PoolOf(context));
  return absl::OkStatus();
}

}  // namespace

Implementation OnednnRow() {
  return {.name = "onednn_matmul",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "oneDNN's matmul primitive",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = Supports,
          .workspace_bytes = WorkspaceBytes,
          .launch = Launch,
          .shape = nullptr};
}

}  // namespace warpcall::matmul
