// Describes models' inputs and outputs in the Open Inference Protocol's terms.
#pragma once

#include <string>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "inference/model_config.pb.h"
#include "kernels/op.h"
#include "server/transport/inference/models.h"

namespace warpcall::oip {

// Value of "platform" and "backend".
inline constexpr char kPlatform[] = "warpcall";

struct OperandInfo {
  std::string name;
  size_t rank = 2;        // number of dimensions listed, all of any size
  bool optional = false;  // requests may omit the operand
};

struct Signature {
  std::vector<OperandInfo> inputs;
  std::vector<OperandInfo> outputs;
};

// The name of the op's outputs; every op has one: "c" of products of a and b, else "y".
const char* OutputName(const Op& op);

// The op's inputs and outputs as matrices and vectors. Ops say which shapes they take by a function
// alone, so ranks are found by asking it: the first that it takes of matrices for all inputs, then
// of vectors for the last ones, and so on.
Signature SignatureOf(const Op& op);

// A model that takes every type is listed as FP32.
void Describe(const Model& model, inference::ModelMetadataResponse* metadata);
void Describe(const Model& model, inference::ModelConfig* config);

}  // namespace warpcall::oip
