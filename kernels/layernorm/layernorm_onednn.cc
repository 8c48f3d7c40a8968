// oneDNN's layer_normalization primitive, and one pass after it over what it says of every row:
// rows whose squares leave float32's range, those that hold NaN or infinity, and those whose
// elements are close together beside their mean, which oneDNN sums as they are, are computed again
// by the vectorised row's code.
#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/common/saturate.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_range.h"
#include "kernels/norm/norm_simd.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

namespace warpcall::layernorm {
namespace {

using dnnl::memory;
using norm::View;
using Primitive = dnnl::layer_normalization_forward;

constexpr int64_t kRowsPerChunk = 4096;  // for the correcting pass: some 10 us if no row is wrong

// Throws dnnl::error if this CPU or oneDNN version lacks the primitive.
Primitive::primitive_desc Describe(const Problem& problem) {
  const View view = norm::ViewOf(problem);
  const memory::desc layout({view.rows, view.n},
                            onednn::ToOnednn(problem.inputs[norm::kX].data_type),
                            memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  // The training form also returns means and variances.
  const Primitive::desc descriptor(
      dnnl::prop_kind::forward_training, layout, static_cast<float>(view.epsilon),
      dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift);
  return {descriptor, attributes, onednn::CpuEngine()};
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[norm::kX].elements() == 0) return absl::OkStatus();
  return onednn::CheckHas("layer_normalization", problem.inputs[norm::kX],
                          [&] { Describe(problem); });
}

// The workspace, in floats: mean and variance of each row; weight and bias, which the primitive
// takes only in float32; then the primitive's scratchpad.
struct Places {
  float* means;
  float* variances;
  float* weight;
  float* bias;
  void* scratchpad;
};

constexpr int64_t kLineFloats = 16;

int64_t InLines(int64_t floats) {
  return SaturatingMultiply(CeilDivide(floats, kLineFloats), kLineFloats);
}

int64_t FloatsOf(const View& view) {
  return SaturatingMultiply(SaturatingAdd(InLines(view.rows), InLines(view.n)), 2);
}

Places PlacesIn(void* workspace, const View& view) {
  auto* const means = static_cast<float*>(workspace);
  float* const variances = means + InLines(view.rows);
  float* const weight = variances + InLines(view.rows);
  float* const bias = weight + InLines(view.n);
  return {means, variances, weight, bias, bias + InLines(view.n)};
}

class OnednnPlan final : public Plan {
 public:
  OnednnPlan(const Problem& problem, const Primitive::primitive_desc& descriptor)
      : Plan({.workspace_bytes = SaturatingBytes(FloatsOf(norm::ViewOf(problem)), sizeof(float)) +
                                 descriptor.scratchpad_desc().get_size(),
              .is_compiled = true}),
        type_(problem.inputs[norm::kX].data_type),
        view_(norm::ViewOf(problem)),
        descriptor_(descriptor),
        primitive_(descriptor) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    const Places places = PlacesIn(context.workspace, view_);
    DispatchDataType(type_, [&]<typename T>(T) {
      const auto* const weight = static_cast<const T*>(operands.inputs[norm::kWeight]);
      const auto* const bias = static_cast<const T*>(operands.inputs[norm::kBias]);
      for (int64_t j = 0; j < view_.n; ++j) {
        places.weight[j] = ToFloat(weight[j]);
        places.bias[j] = ToFloat(bias[j]);
      }
    });
    RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kInternal, "layer_normalization",
                                  [&] { Execute(operands, places, context); }));
    Correct(operands, places, context);
    return absl::OkStatus();
  }

 private:
  // Throws dnnl::error.
  void Execute(const Operands& operands, const Places& places, const LaunchContext& context) const {
    const dnnl::engine engine = onednn::CpuEngine();
    const onednn::Team team(context, view_.rows * view_.n, onednn::kElementsWorthAThread);
    const memory::desc vector({view_.n}, memory::data_type::f32, memory::format_tag::a);
    dnnl::stream stream(engine);
    Primitive(primitive_)
        .execute(
            stream,
            {{DNNL_ARG_SRC,
              memory(descriptor_.src_desc(), engine, const_cast<void*>(operands.inputs[norm::kX]))},
             {DNNL_ARG_DST, memory(descriptor_.dst_desc(), engine, operands.outputs[0])},
             {DNNL_ARG_SCALE, memory(vector, engine, places.weight)},
             {DNNL_ARG_SHIFT, memory(vector, engine, places.bias)},
             {DNNL_ARG_MEAN, memory(descriptor_.mean_desc(), engine, places.means)},
             {DNNL_ARG_VARIANCE, memory(descriptor_.variance_desc(), engine, places.variances)},
             {DNNL_ARG_SCRATCHPAD,
              memory(descriptor_.scratchpad_desc(), engine, places.scratchpad)}});
    stream.wait();
  }

  void Correct(const Operands& operands, const Places& places, const LaunchContext& context) const {
    const norm::Tensors tensors{.x = operands.inputs[norm::kX],
                                .weight = operands.inputs[norm::kWeight],
                                .bias = operands.inputs[norm::kBias],
                                .y = operands.outputs[0],
                                .data_type = type_,
                                .view = view_,
                                .stream = false,
                                .stop = context.stop};
    const auto epsilon = static_cast<float>(view_.epsilon);
    const auto length = static_cast<float>(view_.n);
    cpu::WorkersOf(context).ParallelFor(view_.rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end && !IsSet(context.stop); ++row) {
        const float squares = places.variances[row] * length;
        if (!norm::IsInRange(squares, epsilon) ||
            norm::AreCloseTogether(places.means[row], squares, length))
          norm::NormalizeRows({tensors, row, row + 1});
      }
    });
  }

  const DataType type_;
  const View view_;
  const Primitive::primitive_desc descriptor_;
  const Primitive primitive_;  // any number of threads may execute it
};

absl::StatusOr<PlanPtr> MakeOnednnPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[norm::kX].elements() == 0) return PlanNothing();
  PlanPtr plan;
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kUnimplemented, "layer_normalization", [&] {
    onednn::UseThreads(onednn::ThreadsFor(problem.inputs[norm::kX].elements(),
                                          onednn::kElementsWorthAThread,
                                          context.device->multiprocessors));
    plan = std::make_shared<const OnednnPlan>(problem, Describe(problem));
  }));
  return plan;
}

}  // namespace

Implementation OnednnRow() {
  return {.name = "onednn_layer_normalization",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary =
              "oneDNN's layer_normalization primitive; recomputes rows out of its range or too "
              "close to their mean",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = Supports,
          .plan = MakeOnednnPlan};
}

}  // namespace warpcall::layernorm
