// One step of a program on vectors, for the target at hand.

#if defined(WARPCALL_KERNELS_FUSED_SIMD_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WARPCALL_KERNELS_FUSED_SIMD_STEPS_INL_H_
#undef WARPCALL_KERNELS_FUSED_SIMD_STEPS_INL_H_
#else
#define WARPCALL_KERNELS_FUSED_SIMD_STEPS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/simd_convert-inl.h"
#include "kernels/cpu/simd_functions-inl.h"
#include "kernels/expression/mask.h"
#include "kernels/fused/fused_steps.h"
#include "proto/common/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::fused::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = warpcall::cpu::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using expression::Node;
using expression::Operator;
using expression::Walk;

// Runs of `count` values, `rows` of them: operand k's begin `step[k]` apart, and have one value
// each where it is narrow.
struct Run {
  float* out;
  int64_t out_step;
  const float* in[expression::kOperandsMax];
  int64_t in_step[expression::kOperandsMax];
  bool narrow[expression::kOperandsMax];
  int64_t rows;
  int64_t count;
};

// out = f(operands), for `kOperands` of them.
template <int kOperands, typename Function>
HWY_INLINE void Map(const Run& run, const Function& f) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < run.rows; ++row) {
    const float* from[3];
    V same[3];
    for (int k = 0; k < kOperands; ++k) {
      from[k] = run.in[k] + row * run.in_step[k];
      same[k] = hn::Set(d, *from[k]);
    }
    float* const out = run.out + row * run.out_step;
    int64_t i = 0;
    for (; i + lanes <= run.count; i += lanes) {
      V v[3];
      for (int k = 0; k < kOperands; ++k)
        v[k] = run.narrow[k] ? same[k] : hn::LoadU(d, from[k] + i);
      hn::StoreU(f(v), d, out + i);
    }
    if (i == run.count) continue;
    const auto rest = static_cast<size_t>(run.count - i);
    V v[3];
    for (int k = 0; k < kOperands; ++k)
      v[k] = run.narrow[k] ? same[k] : simd::LoadFloatsPartial(d, from[k] + i, rest, 1.0f);
    simd::StoreFloatsPartial(d, f(v), out + i, rest);
  }
}

HWY_INLINE V OneIf(D d, hn::Mask<D> mask) { return hn::IfThenElseZero(mask, hn::Set(d, 1.0f)); }

// Here and in RowMax: NaN wins, and what came second where both are equal.
HWY_INLINE V MaxOf(V a, V b) { return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b); }
HWY_INLINE V MinOf(V a, V b) { return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b); }

void MapPow(const Run& run, double exponent) {
  for (int64_t row = 0; row < run.rows; ++row) {
    const float* const from = run.in[0] + row * run.in_step[0];
    float* const out = run.out + row * run.out_step;
    for (int64_t i = 0; i < run.count; ++i)
      out[i] =
          static_cast<float>(std::pow(static_cast<double>(from[run.narrow[0] ? 0 : i]), exponent));
  }
}

// 1 where it holds, else 0.
void ApplyComparison(Operator op, const Run& run) {
  const D d;
  switch (op) {
    case Operator::kLess:
      return Map<2>(run, [=](const V* v) HWY_ATTR { return OneIf(d, hn::Lt(v[0], v[1])); });
    case Operator::kLessEqual:
      return Map<2>(run, [=](const V* v) HWY_ATTR { return OneIf(d, hn::Le(v[0], v[1])); });
    case Operator::kGreater:
      return Map<2>(run, [=](const V* v) HWY_ATTR { return OneIf(d, hn::Gt(v[0], v[1])); });
    case Operator::kGreaterEqual:
      return Map<2>(run, [=](const V* v) HWY_ATTR { return OneIf(d, hn::Ge(v[0], v[1])); });
    default:  // kEqual
      return Map<2>(run, [=](const V* v) HWY_ATTR { return OneIf(d, hn::Eq(v[0], v[1])); });
  }
}

void Apply(const Node& node, const Run& run) {
  const D d;
  switch (node.op) {
    case Operator::kNegate:
      return Map<1>(run, [](const V* v) HWY_ATTR { return hn::Neg(v[0]); });
    case Operator::kAbs:
      return Map<1>(run, [](const V* v) HWY_ATTR { return hn::Abs(v[0]); });
    case Operator::kExp:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::ExpOfAny(d, v[0]); });
    case Operator::kExp2:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::Exp2OfAny(d, v[0]); });
    case Operator::kLog:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::Log(d, v[0]); });
    case Operator::kSqrt:
      return Map<1>(run, [](const V* v) HWY_ATTR { return hn::Sqrt(v[0]); });
    case Operator::kRsqrt:
      return Map<1>(run,
                    [=](const V* v) HWY_ATTR { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(v[0])); });
    case Operator::kTanh:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::Tanh(d, v[0]); });
    case Operator::kErf:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::Erf(d, v[0]); });
    case Operator::kSigmoid:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::Sigmoid(d, v[0]); });
    case Operator::kSilu:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::Silu(d, v[0]); });
    case Operator::kGelu:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::TanhForm::Apply(d, v[0]); });
    case Operator::kGeluErf:
      return Map<1>(run, [=](const V* v) HWY_ATTR { return simd::ErfForm::Apply(d, v[0]); });
    case Operator::kRelu:
      return Map<1>(run, [=](const V* v) HWY_ATTR {
        return hn::IfThenZeroElse(hn::Le(v[0], hn::Zero(d)), v[0]);
      });
    case Operator::kPow:
      return MapPow(run, node.value);
    case Operator::kAdd:
      return Map<2>(run, [](const V* v) HWY_ATTR { return hn::Add(v[0], v[1]); });
    case Operator::kSubtract:
      return Map<2>(run, [](const V* v) HWY_ATTR { return hn::Sub(v[0], v[1]); });
    case Operator::kMultiply:
      return Map<2>(run, [](const V* v) HWY_ATTR { return hn::Mul(v[0], v[1]); });
    case Operator::kDivide:
      return Map<2>(run, [](const V* v) HWY_ATTR { return hn::Div(v[0], v[1]); });
    case Operator::kMin:
      return Map<2>(run, [](const V* v) HWY_ATTR { return MinOf(v[0], v[1]); });
    case Operator::kMax:
      return Map<2>(run, [](const V* v) HWY_ATTR { return MaxOf(v[0], v[1]); });
    case Operator::kLess:
    case Operator::kLessEqual:
    case Operator::kGreater:
    case Operator::kGreaterEqual:
    case Operator::kEqual:
      return ApplyComparison(node.op, run);
    case Operator::kSelect:
      return Map<3>(run, [=](const V* v) HWY_ATTR {
        return hn::IfThenElse(hn::Ne(v[0], hn::Zero(d)), v[1], v[2]);
      });
    // Reductions of a row of one element copy it; the other operators are never applied.
    case Operator::kRowSum:
    case Operator::kRowMean:
    case Operator::kRowMax:
    case Operator::kRowMin:
    case Operator::kRowInverseRms:
    case Operator::kInput:
    case Operator::kConstant:
    case Operator::kDropout:
      return Map<1>(run, [](const V* v) HWY_ATTR { return v[0]; });
  }
}

// The first element of each row of the tile, by `take(row of the tile, element)`.
template <typename Take>
void ForEachRow(const Frame& frame, const Walk& walk, const Tile& tile, const Take& take) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t first = walk.RowOffset(frame.program.layout.outer, tile.row + row);
    take(row, walk.wide ? first + tile.column : first);
  }
}

template <typename T>
void LoadRow(const T* from, int64_t count, float* to) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(simd::LoadFloats(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = ToFloat(from[i]);
}

template <typename T>
void StoreRow(const float* from, int64_t count, T* to) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) simd::StoreFloats(d, hn::LoadU(d, from + i), to + i);
  for (; i < count; ++i) to[i] = FromFloat<T>(from[i]);
}

void LoadInput(const Frame& frame, const Node& node, const Tile& tile, const Run& run) {
  const Walk& walk = frame.program.layout.inputs[static_cast<size_t>(node.index)];
  DispatchDataType(frame.data_type, [&]<typename T>(T) HWY_ATTR {
    const T* const x =
        static_cast<const T*>(frame.operands.inputs[static_cast<size_t>(node.index)]);
    ForEachRow(frame, walk, tile, [&](int64_t row, int64_t first) HWY_ATTR {
      LoadRow(x + first, run.count, run.out + row * run.out_step);
    });
  });
}

void Drop(const Frame& frame, int id, const Tile& tile, const Run& run) {
  const Node& node = frame.program.graph.nodes[static_cast<size_t>(id)];
  const expression::Mask mask(node.value, node.index, frame.program.seed);
  const float scale = expression::ScaleOf(node.value);
  const Walk& walk = frame.program.layout.dropouts[static_cast<size_t>(id)];
  ForEachRow(frame, walk, tile, [&](int64_t row, int64_t first) HWY_ATTR {
    const float* const from = run.in[0] + row * run.in_step[0];
    float* const out = run.out + row * run.out_step;
    for (int64_t i = 0; i < run.count;) {
      const int64_t place = first + i;
      const expression::PhiloxWords words = mask.Words(place / 4);
      for (int64_t word = place % 4; word < 4 && i < run.count; ++word, ++i) {
        const float value = from[run.narrow[0] ? 0 : i] * scale;
        out[i] = mask.Keeps(words[static_cast<size_t>(word)]) ? value : 0.0f;
      }
    }
  });
}

// Returns the places of a node's operands and result, for the rows of a tile.
Run RunOf(const Frame& frame, int id, const Tile& tile) {
  const std::vector<bool>& wide = frame.program.layout.wide;
  const Node& node = frame.program.graph.nodes[static_cast<size_t>(id)];
  const Arrays& arrays = frame.arrays;
  Run run = {};
  run.rows = tile.rows;
  run.count = tile.columns;
  bool whole = arrays.row_stride == tile.columns;
  for (int k = 0; k < expression::OperandCount(node.op); ++k) {
    const int operand = node.operands[k];
    run.narrow[k] = !wide[static_cast<size_t>(operand)];
    whole &= !run.narrow[k];
    run.in[k] = run.narrow[k] ? arrays.NarrowAt(operand, tile.row)
                              : arrays.WideAt(frame.places[static_cast<size_t>(operand)], tile);
    run.in_step[k] = run.narrow[k] ? 1 : arrays.row_stride;
  }
  if (!wide[static_cast<size_t>(id)]) {  // a run over the rows
    run.out = arrays.NarrowAt(id, tile.row);
    run.out_step = run.count = 1;
    if (node.op == Operator::kInput || node.op == Operator::kDropout) return run;
    run.count = tile.rows;
    run.rows = 1;
    std::fill(std::begin(run.narrow), std::end(run.narrow), false);
    return run;
  }
  run.out = arrays.WideAt(frame.places[static_cast<size_t>(id)], tile);
  run.out_step = arrays.row_stride;
  if (whole && node.op != Operator::kInput && node.op != Operator::kDropout) {
    run.count *= run.rows;
    run.rows = 1;
  }
  return run;
}

HWY_ATTR void RunStepOn(const Frame& frame, int id, const Tile& tile) {
  const Node& node = frame.program.graph.nodes[static_cast<size_t>(id)];
  const Run run = RunOf(frame, id, tile);
  if (node.op == Operator::kInput) return LoadInput(frame, node, tile, run);
  if (node.op == Operator::kDropout) return Drop(frame, id, tile, run);
  if (node.op == Operator::kConstant) {
    std::fill_n(run.out, run.count, static_cast<float>(node.value));
    return;
  }
  Apply(node, run);
}

double RowSum(const float* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    sum0 = hn::Add(sum0, hn::PromoteTo(d, hn::LoadU(df, x + i)));
    sum1 = hn::Add(sum1, hn::PromoteTo(d, hn::LoadU(df, x + i + lanes)));
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < count; ++i) sum += x[i];
  return sum;
}

template <bool kMax>
float RowGreatest(const float* x, int64_t count, float so_far) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V greatest = hn::Set(d, so_far);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V value = hn::LoadU(d, x + i);
    greatest = kMax ? MaxOf(value, greatest) : MinOf(value, greatest);
  }
  HWY_ALIGN float values[hn::MaxLanes(D())];
  hn::Store(greatest, d, values);
  const auto take = [&](float value) {
    if ((kMax ? value > so_far : value < so_far) || std::isnan(value)) so_far = value;
  };
  for (int64_t lane = 0; lane < lanes; ++lane) take(values[lane]);
  for (; i < count; ++i) take(x[i]);
  return so_far;
}

HWY_ATTR void ReduceOn(const Frame& frame, int id, const Tile& tile, double* partials) {
  const Node& node = frame.program.graph.nodes[static_cast<size_t>(id)];
  const float* x = frame.arrays.WideAt(frame.places[static_cast<size_t>(node.operands[0])], tile);
  for (int64_t row = 0; row < tile.rows; ++row, x += frame.arrays.row_stride) {
    if (node.op == Operator::kRowMax) {
      partials[row] = RowGreatest<true>(x, tile.columns, static_cast<float>(partials[row]));
    } else if (node.op == Operator::kRowMin) {
      partials[row] = RowGreatest<false>(x, tile.columns, static_cast<float>(partials[row]));
    } else {
      partials[row] += RowSum(x, tile.columns);
    }
  }
}

HWY_ATTR void StoreResultOn(const Frame& frame, const Tile& tile) {
  const size_t result = frame.program.graph.nodes.size() - 1;
  const int64_t columns = frame.program.layout.columns;
  DispatchDataType(frame.data_type, [&]<typename T>(T) HWY_ATTR {
    T* y = static_cast<T*>(frame.operands.outputs[0]) + tile.row * columns + tile.column;
    for (int64_t row = 0; row < tile.rows; ++row, y += columns) {
      if (frame.program.layout.wide[result]) {
        const Tile one = {tile.row + row, 1, tile.column, tile.columns};
        StoreRow(frame.arrays.WideAt(frame.places[result], one), tile.columns, y);
      } else {
        const float* const value = frame.arrays.NarrowAt(static_cast<int>(result), tile.row + row);
        std::fill_n(y, tile.columns, FromFloat<T>(*value));
      }
    }
  });
}

}  // namespace warpcall::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
