#include "kernels/norm/norm_expression.h"

#include <utility>

#include "kernels/norm/norm.h"
#include "proto/common/check.h"

namespace warpcall::norm {
namespace {

using expression::Graph;
using expression::GraphBuilder;
using expression::Operator;

// x / sqrt(mean(x^2) + epsilon) x weight. Squares and their mean are in float64, which no float32's
// square leaves.
Graph RmsGraph(double epsilon) {
  GraphBuilder build;
  const int x = build.Input(0);
  const int normal = build.Apply(Operator::kMultiply, x, build.InverseRms(x, epsilon));
  const int result = build.Apply(Operator::kMultiply, normal, build.Input(1));
  return std::move(build).Finish(result, 2, 4);
}

// With halves of x, whose distances from their mean stay in float32's range; epsilon is a quarter
// then.
Graph LayerGraph(double epsilon) {
  GraphBuilder build;
  const int half = build.Apply(Operator::kMultiply, build.Input(0), build.Constant(0.5));
  const int mean = build.Apply(Operator::kRowMean, half);
  const int distance = build.Apply(Operator::kSubtract, half, mean);
  const int normal =
      build.Apply(Operator::kMultiply, distance, build.InverseRms(distance, epsilon / 4));
  const int weighed = build.Apply(Operator::kMultiply, normal, build.Input(1));
  const int result = build.Apply(Operator::kAdd, weighed, build.Input(2));
  return std::move(build).Finish(result, 3, 7);
}

}  // namespace

expression::CudaTask TaskOf(const Problem& problem) {
  const View view = ViewOf(problem);
  WARPCALL_DCHECK(view.epsilon >= kEpsilonMin && view.epsilon <= kEpsilonMax, view.epsilon);
  expression::CudaTask task = {
      .graph = view.centered ? LayerGraph(view.epsilon) : RmsGraph(view.epsilon),
      .inputs = problem.inputs,
      .arithmetic = expression::CudaArithmetic::kQuick};
  task.inputs[kX].dims = {view.rows, view.n};
  return task;
}

}  // namespace warpcall::norm
