// What models take and give, told in the Open Inference Protocol's words.
#pragma once

#include <string>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "inference/model_config.pb.h"
#include "kernels/op.h"
#include "server/transport/inference/models.h"

namespace warpcall::oip {

// What stands for "platform" and "backend".
inline constexpr char kPlatform[] = "warpcall";

struct OperandInfo {
  std::string name;
  size_t rank = 2;        // of the dimensions that are told, all of any size
  bool optional = false;  // requests may leave it out
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

// Of a model that takes every type they say FP32.
void Describe(const Model& model, inference::ModelMetadataResponse* metadata);
void Describe(const Model& model, inference::ModelConfig* config);

}  // namespace warpcall::oip
