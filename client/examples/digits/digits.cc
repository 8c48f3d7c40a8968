// Reads handwritten digits with a small neural network that runs, layer by layer, on a Warpcall
// server, in two ways: each layer in one call, and as products and fused expressions. README.md
// says where the images and the network come from.
#include <warpcall/client.h>
#include <warpcall/npy.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/common/status_macros.h"

namespace warpcall::digits {
namespace {

using client::Client;
using client::Result;
using client::Tensor;

// Under this something is wrong with the server: NumPy gets 97 % of the same images right.
constexpr double kAccuracyMin = 0.95;

struct Data {
  Tensor images;         // n x 64: 8 x 8 pixels from 0 to 1
  Tensor labels;         // n
  Tensor weights_1;      // h x 64
  Tensor bias_1;         // h
  Tensor weights_2;      // 10 x h
  Tensor bias_2;         // 10
  Tensor probabilities;  // n x 10, by NumPy
};

// A call that was made, for the table.
struct Step {
  const char* what;
  Result result;
};

absl::StatusOr<Data> ReadData(const std::string& folder) {
  Data data;
  const std::pair<const char*, Tensor*> files[] = {
      {"images", &data.images},
      {"labels", &data.labels},
      {"weights_1", &data.weights_1},
      {"bias_1", &data.bias_1},
      {"weights_2", &data.weights_2},
      {"bias_2", &data.bias_2},
      {"probabilities", &data.probabilities},
  };
  for (const auto& [name, tensor] : files) {
    ASSIGN_OR_RETURN(*tensor, client::ReadNpy(absl::StrCat(folder, "/", name, ".npy")));
  }
  return data;
}

// Runs one step of the network, notes it in `steps`, and gives its output.
absl::StatusOr<Tensor> Take(const char* what, absl::StatusOr<Result> result,
                            std::vector<Step>* steps) {
  if (!result.ok())
    return absl::Status(result.status().code(),
                        absl::StrCat(what, ": ", result.status().message()));
  if (result->outputs.size() != 1)
    return absl::InternalError(absl::StrCat(what, ": ", result->outputs.size(), " outputs"));
  steps->push_back({what, *std::move(result)});
  return steps->back().result.outputs[0];
}

// linear, linear, softmax: product, bias and activation of a layer in one pass.
absl::StatusOr<Tensor> ClassifyByLayers(Client& client, const Data& data,
                                        std::vector<Step>* steps) {
  const auto linear = [&](const Tensor& x, const Tensor& weights, const Tensor& bias,
                          const char* activation) {
    return client.Execute({.kernel = "linear",
                           .inputs = {x, weights, bias},
                           .attributes = {{"activation", std::string(activation)}}});
  };
  ASSIGN_OR_RETURN(
      const Tensor hidden,
      Take("layer 1", linear(data.images, data.weights_1, data.bias_1, "gelu"), steps));
  ASSIGN_OR_RETURN(const Tensor logits,
                   Take("layer 2", linear(hidden, data.weights_2, data.bias_2, "none"), steps));
  return Take("classes", client.Softmax(logits), steps);
}

// matmul, fused, matmul, fused: what follows a product is one expression.
absl::StatusOr<Tensor> ClassifyByChains(Client& client, const Data& data,
                                        std::vector<Step>* steps) {
  client::MatmulAttributes stored;
  stored.transpose_b = true;
  const auto fused = [&](const char* expression, const Tensor& x, const Tensor& bias) {
    return client.Execute({.kernel = "fused",
                           .inputs = {x, bias},
                           .attributes = {{"expression", std::string(expression)}}});
  };
  ASSIGN_OR_RETURN(const Tensor before,
                   Take("product 1", client.Matmul(data.images, data.weights_1, stored), steps));
  ASSIGN_OR_RETURN(const Tensor hidden,
                   Take("gelu chain", fused("gelu(x0 + x1)", before, data.bias_1), steps));
  ASSIGN_OR_RETURN(const Tensor logits,
                   Take("product 2", client.Matmul(hidden, data.weights_2, stored), steps));
  return Take("class chain", fused("softmax(x0 + x1)", logits, data.bias_2), steps);
}

size_t MostLikely(absl::Span<const float> probabilities) {
  return static_cast<size_t>(std::max_element(probabilities.begin(), probabilities.end()) -
                             probabilities.begin());
}

struct Score {
  size_t images = 0;
  size_t right = 0;
  size_t agree = 0;  // with NumPy's class
  double largest_difference = 0;
};

absl::StatusOr<Score> Compare(const Tensor& classes, const Data& data) {
  const std::vector<float> ours = classes.ToFloats();
  const std::vector<float> numpy = data.probabilities.ToFloats();
  const std::vector<float> labels = data.labels.ToFloats();
  if (labels.empty() || ours.size() != numpy.size() || ours.size() % labels.size() != 0)
    return absl::InvalidArgumentError(absl::StrCat("the data do not fit: ", labels.size(),
                                                   " labels, ", ours.size(), " probabilities and ",
                                                   numpy.size(), " of NumPy"));
  const size_t columns = ours.size() / labels.size();
  Score score{.images = labels.size()};
  for (size_t i = 0; i < labels.size(); ++i) {
    const size_t digit = MostLikely(absl::MakeConstSpan(ours).subspan(i * columns, columns));
    score.right += digit == static_cast<size_t>(labels[i]);
    score.agree += digit == MostLikely(absl::MakeConstSpan(numpy).subspan(i * columns, columns));
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(double{ours[i]} - double{numpy[i]});
    if (std::isnan(difference))
      return absl::InternalError(absl::StrCat("probability ", i, " is not a number"));
    score.largest_difference = std::max(score.largest_difference, difference);
  }
  return score;
}

void PrintTimes(const std::vector<Step>& steps) {
  std::printf("%-11s %-16s %-7s %9s %9s %9s %9s %9s\n", "CALL", "IMPLEMENTATION", "DEVICE",
              "QUEUE us", "COPY us", "KERNEL us", "SERVER us", "WALL us");
  for (const Step& step : steps) {
    const auto us = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; };
    const client::Timing& timing = step.result.timing;
    std::printf("%-11s %-16s %-7s %9.1f %9.1f %9.1f %9.1f %9.1f\n", step.what,
                step.result.implementation.c_str(), step.result.device.c_str(), us(timing.queue_ns),
                us(timing.copy_in_ns), us(timing.kernel_ns), us(timing.total_ns),
                us(absl::ToInt64Nanoseconds(step.result.wall)));
  }
}

using Classify = absl::StatusOr<Tensor> (*)(Client& client, const Data& data,
                                            std::vector<Step>* steps);

// Reads the images in one way: false when too few were read right.
absl::StatusOr<bool> Read(const char* way, Classify classify, Client& client, const Data& data) {
  std::vector<Step> steps;
  ASSIGN_OR_RETURN(const Tensor classes, classify(client, data, &steps));
  ASSIGN_OR_RETURN(const Score score, Compare(classes, data));
  const double accuracy = static_cast<double>(score.right) / static_cast<double>(score.images);
  std::printf("%s: %zu of %zu held-out digits read correctly: %.1f %%\n", way, score.right,
              score.images, 100 * accuracy);
  std::printf("same digit as NumPy: %zu of %zu; largest difference of a probability: %.1e\n\n",
              score.agree, score.images, score.largest_difference);
  PrintTimes(steps);
  if (accuracy >= kAccuracyMin) return true;
  std::fprintf(stderr, "digits: %s: accuracy %.1f %% is under %.0f %%\n", way, 100 * accuracy,
               100 * kAccuracyMin);
  return false;
}

absl::StatusOr<bool> Run(const std::string& server, const std::string& folder) {
  ASSIGN_OR_RETURN(const Data data, ReadData(folder));
  Client client(server, {.timeout = absl::Seconds(30)});
  ASSIGN_OR_RETURN(const bool layers,
                   Read("linear, linear, softmax", ClassifyByLayers, client, data));
  std::printf("\n");
  ASSIGN_OR_RETURN(const bool chains,
                   Read("matmul, fused, matmul, fused", ClassifyByChains, client, data));
  return layers && chains;
}

int Main(int argc, char** argv) {
  std::string server = "127.0.0.1:8470";
  std::string folder = "client/examples/digits/data";
  CLI::App app("Reads handwritten digits through a Warpcall server.", "digits");
  app.add_option("--server", server, "host:port or unix:/path")
      ->envname("WARPCALL_SERVER")
      ->capture_default_str();
  app.add_option("--data", folder, "The folder with the .npy files")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const absl::StatusOr<bool> good = Run(server, folder);
  if (!good.ok()) {
    std::fprintf(stderr, "digits: %s\n", good.status().ToString().c_str());
    return 1;
  }
  return *good ? 0 : 1;
}

}  // namespace
}  // namespace warpcall::digits

int main(int argc, char** argv) { return warpcall::digits::Main(argc, argv); }
