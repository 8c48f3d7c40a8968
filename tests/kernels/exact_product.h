// Products of small integers, whose sums are exact, so that each output has one right value; for
// tests of kernels on an emulation.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "proto/common/half.h"

namespace warpcall::matmul {

// Stands in for linear's epilogue: adds the bias only.
template <typename T>
struct AddBias {
  const T* bias;
  template <int kCount>
  struct BiasOfColumns {
    float values[kCount];
  };
  AddBias From(int64_t column) const { return {bias + column}; }
  template <int kCount>
  BiasOfColumns<kCount> BiasOf(int64_t columns) const {
    BiasOfColumns<kCount> of;
    for (int i = 0; i < kCount; ++i) of.values[i] = i < columns ? ToFloat(bias[i]) : 0;
    return of;
  }
  template <int kCount>
  void Apply(const BiasOfColumns<kCount>& of, float (&values)[kCount]) const {
    for (int i = 0; i < kCount; ++i) values[i] += of.values[i];
  }
  template <typename Body>
  void Visit(const Body& body) const {
    body(*this);
  }
};

struct ProductSize {
  int64_t m;
  int64_t n;
  int64_t k;
};

struct ProductForm {
  bool transpose_a = false;
  bool transpose_b = false;
  Dims a_batches = {};
  Dims b_batches = {};
  bool bias = false;
  std::string precision = "ieee";
};

// T is float or BFloat16.
template <typename T>
class ExactProduct {
 public:
  ExactProduct(const ProductSize& size, const ProductForm& form) : form_(form) {
    Dims a = form.a_batches;
    a.push_back(form.transpose_a ? size.k : size.m);
    a.push_back(form.transpose_a ? size.m : size.k);
    Dims b = form.b_batches;
    b.push_back(form.transpose_b ? size.n : size.k);
    b.push_back(form.transpose_b ? size.k : size.n);
    const DataType type = sizeof(T) == 4 ? DataType::kFloat32 : DataType::kBFloat16;
    problem_ = *MakeProblem(MatmulOp(), {{type, a}, {type, b}},
                            {{"transpose_a", form.transpose_a},
                             {"transpose_b", form.transpose_b},
                             {"precision", form.precision}});
    std::mt19937 random(7);
    const auto fill = [&](int64_t elements) {
      std::vector<T> values(static_cast<size_t>(elements));
      for (T& value : values) value = FromFloat<T>(static_cast<float>(random() % 9) - 4);
      return values;
    };
    for (const TensorSpec& spec : problem_.inputs) inputs_.push_back(fill(spec.elements()));
    bias_ = form.bias ? fill(size.n) : std::vector<T>(static_cast<size_t>(size.n));
    SumUp();
  }

  const Problem& problem() const { return problem_; }
  const std::vector<T>& input(int index) const { return inputs_[static_cast<size_t>(index)]; }
  // Null where there is none.
  const T* bias() const { return form_.bias ? bias_.data() : nullptr; }
  // The outputs, rounded to T.
  const std::vector<float>& right() const { return right_; }

  std::string Name() const {
    return absl::StrCat(ToString(problem_.inputs[0]), " by ", ToString(problem_.inputs[1]),
                        form_.transpose_a ? ", a[k,m]" : ", a[m,k]",
                        form_.transpose_b ? ", b[n,k]" : ", b[k,n]");
  }

 private:
  void SumUp() {
    const Shape shape = DecodeShape(problem_);
    right_.resize(static_cast<size_t>(problem_.outputs[0].elements()));
    for (int64_t i = 0; i < problem_.outputs[0].elements(); ++i) {
      const Offsets at = shape.BatchOffsets(i / (shape.m * shape.n));
      const int64_t a = at.a + i / shape.n % shape.m * shape.a_row_stride;
      const int64_t b = at.b + i % shape.n * shape.b_column_stride;
      float sum = ToFloat(bias_[static_cast<size_t>(i % shape.n)]);
      for (int64_t p = 0; p < shape.k; ++p)
        sum += ToFloat(inputs_[0][static_cast<size_t>(a + p * shape.a_column_stride)]) *
               ToFloat(inputs_[1][static_cast<size_t>(b + p * shape.b_row_stride)]);
      right_[static_cast<size_t>(i)] = ToFloat(FromFloat<T>(sum));
    }
  }

  ProductForm form_;
  Problem problem_;
  std::vector<std::vector<T>> inputs_;
  std::vector<T> bias_;
  std::vector<float> right_;
};

}  // namespace warpcall::matmul
