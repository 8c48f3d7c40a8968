// Requests of the methods for which the server makes the inputs, in float32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {

using Shapes = std::vector<std::vector<int64_t>>;

template <typename Request>
Request SpecsRequest(const std::string& kernel, const Shapes& shapes) {
  Request request;
  request.set_kernel(kernel);
  for (const std::vector<int64_t>& shape : shapes) {
    v1::TensorSpec* const input = request.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->mutable_shape()->Assign(shape.begin(), shape.end());
  }
  return request;
}

inline v1::BenchmarkRequest BenchmarkOf(const std::string& kernel, const Shapes& shapes) {
  return SpecsRequest<v1::BenchmarkRequest>(kernel, shapes);
}

inline v1::DescribeRequest DescribeOf(const std::string& kernel, const Shapes& shapes) {
  return SpecsRequest<v1::DescribeRequest>(kernel, shapes);
}

}  // namespace warpcall::testing
