// The registry as the Open Inference Protocol's clients see it: each kernel is a model under its
// own name and under names that fix the data type, and with it a family or a row.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/registry.h"

namespace warpcall {

class Engine;

namespace oip {

// Every model has this version and no other.
inline constexpr char kModelVersion[] = "1";

// "FP32", "FP16", "BF16".
const char* WireTypeName(DataType type);
// INVALID_ARGUMENT for a name that the protocol does not know, or that no kernel takes.
absl::StatusOr<DataType> ToDataType(absl::string_view wire_name);

struct Model {
  std::string name;  // "gelu", "gelu_fp16", "gelu_bf16__cuda"
  const Kernel* kernel;
  absl::optional<DataType> data_type;  // none: what the request says
  std::string implementation;          // a row or a family; empty: what the request says
};

// Closed once made; thread-safe.
class Models {
 public:
  // `registry` outlives it.
  explicit Models(const Registry& registry);

  absl::Span<const Model> all() const { return models_; }
  // The position among all(). NOT_FOUND for a name or a version that there is not,
  // INVALID_ARGUMENT for a version that is no number. An empty version means any.
  absl::StatusOr<size_t> Find(absl::string_view name, absl::string_view version) const;

  // OK when a row of the model runs on a healthy device of the engine; UNAVAILABLE says why none
  // does.
  absl::Status CheckReady(const Model& model, const Engine& engine) const;

 private:
  void Add(Model model);
  void AddTyped(const Kernel& kernel, DataType type);
  std::string Known(absl::string_view name) const;

  const Registry& registry_;
  std::vector<Model> models_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

}  // namespace oip
}  // namespace warpcall
