// The truth: the definition in float64, rounded once.
#include "kernels/common/element_slices.h"
#include "kernels/cpu/definition_row.h"
#include "tests/ops/relu/relu.h"

namespace warpcall::relu {
namespace {

double Relu(double x) { return x <= 0 ? 0 : x; }  // NaN stays

}  // namespace

const Definition kDefinition = {
    .slices = ElementSlices, .slice = ElementSlice, .evaluate = EvaluateElements<Relu>};

Implementation Float64Row() { return cpu::DefinitionRow(ReluOp()); }

}  // namespace warpcall::relu
