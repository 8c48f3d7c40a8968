// The truth: matmul's float64 sums, bias and activation in float64, one rounding at the end.
#include <array>

#include "kernels/cpu/definition_row.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "proto/common/dispatch.h"

namespace warpcall::linear {
namespace {

constexpr size_t kPieceElements = 128;  // a KiB of values

int64_t Slices(const Problem& problem) { return matmul::kDefinition.slices(ProductOf(problem)); }

Slice SliceAt(const Problem& problem, int64_t index) {
  return matmul::kDefinition.slice(ProductOf(problem), index);
}

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const Problem product = ProductOf(problem);
  const int64_t n = product.outputs[0].dims[1];
  const matmul::Activation activation = ActivationOf(problem);
  DispatchDataType(problem.inputs[kX].data_type, [&]<typename T>(T) {
    const T* const bias = static_cast<const T*>(inputs.inputs[kBias]);
    int64_t column = matmul::kDefinition.slice(product, index).first % n;
    std::array<double, kPieceElements> piece;
    const auto finish = [&](absl::Span<const double> sums) {
      for (; !sums.empty(); sums.remove_prefix(std::min(sums.size(), piece.size()))) {
        const size_t count = std::min(sums.size(), piece.size());
        for (size_t i = 0; i < count; ++i) {
          piece[i] = Activate(activation, sums[i] + double{ToFloat(bias[column])});
          column = column + 1 == n ? 0 : column + 1;
        }
        take(absl::MakeConstSpan(piece.data(), count));
      }
    };
    class WhileTaken final : public StopFlag {
     public:
      explicit WhileTaken(const TakeValues& take) : take_(take) {}
      bool IsSet() const override { return take_.Stopped(); }

     private:
      const TakeValues& take_;
    };
    const WhileTaken stop(take);
    matmul::kDefinition.evaluate(product, inputs, index, TakeValues(finish, &stop));
  });
}

}  // namespace

const Definition kDefinition = {.slices = Slices, .slice = SliceAt, .evaluate = Evaluate};

Implementation Float64Row() { return cpu::DefinitionRow(LinearOp()); }

}  // namespace warpcall::linear
