// old_names ADDRESS: identity of two numbers, by the names that the public headers have until 1.0.
#include <cstdio>

#include "client/cpp/call.h"
#include "client/cpp/cancellation.h"
#include "client/cpp/client.h"
#include "client/cpp/credentials.h"
#include "client/cpp/inspect.h"
#include "client/cpp/npy.h"
#include "client/cpp/retry.h"
#include "client/cpp/tensor.h"
#include "client/cpp/tensor_view.h"

int main(int argc, char** argv) {
  namespace wc = warpcall::client;
  if (argc != 2) return 2;
  wc::Client client(argv[1], {.retry = wc::RetryOptions(), .credentials = wc::Credentials()});
  wc::Cancellation cancellation;
  const auto result = client.Identity(wc::Tensor::FromFloats({2}, {-1.5f, 2.0f}),
                                      wc::CallOptions{.cancellation = &cancellation});
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  for (const float value : result->outputs[0].ToFloats()) std::printf("%g\n", value);
  return 0;
}
