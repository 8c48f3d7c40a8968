// consumer ADDRESS: relu of three numbers by `fused`, and which device would run it, with every
// public header of the C++ client.
#include <warpcall/call.h>
#include <warpcall/client.h>
#include <warpcall/graph.h>
#include <warpcall/inspect.h>
#include <warpcall/npy.h>
#include <warpcall/tensor.h>

#include <cstdio>

int main(int argc, char** argv) {
  namespace wc = warpcall::client;
  if (argc != 2) return 2;
  wc::Client client(argv[1]);
  const auto result = client.Execute({.kernel = "fused",
                                      .inputs = {wc::Tensor::FromFloats({3}, {-1.0f, 0.0f, 2.5f})},
                                      .attributes = {{"expression", "max(x0, 0)"}}});
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  const auto description = client.Describe({.kernel = "fused",
                                            .inputs = {{warpcall::DataType::kFloat32, {3}}},
                                            .attributes = {{"expression", "max(x0, 0)"}}});
  if (!description.ok()) {
    std::fprintf(stderr, "%s\n", description.status().ToString().c_str());
    return 1;
  }
  for (const float value : result->outputs[0].ToFloats()) std::printf("%g\n", value);
  std::printf("%s\n", description->device().c_str());
  return 0;
}
