// One row of the registry on a GPU, ready to be launched again and again on the same memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/runtime/cuda/cuda_device.h"

namespace warpcall::testing {

struct RowRequest {
  std::string kernel;
  std::string implementation;  // as for Registry::Select
  DataType data_type = DataType::kFloat32;
  std::vector<Dims> shapes;
};

// {"gelu", "vectorized", "float32", "67108864"}, {"matmul", "mma_tiled", "bfloat16", "64x32",
// "32x8"}. INVALID_ARGUMENT lists the expected words.
absl::StatusOr<RowRequest> ParseRowRequest(const std::vector<std::string>& words);
std::vector<std::string> WordsOf(const RowRequest& request);

class LaunchedRow {
 public:
  // Planned; inputs are small positive numbers. `device` outlives it.
  static absl::StatusOr<std::unique_ptr<LaunchedRow>> Create(CudaDevice* device,
                                                             const RowRequest& request);

  // Enqueues, from any thread.
  absl::Status Launch();
  absl::Status Synchronize() { return stream_->Synchronize(); }
  absl::StatusOr<LaunchShape> Shape() const;

  absl::string_view name() const { return row_->implementation.name; }
  Stream* stream() { return stream_.get(); }
  const Problem& problem() const { return problem_; }
  const Operands& operands() const { return operands_; }

 private:
  explicit LaunchedRow(CudaDevice* device) : device_(device) {}
  absl::Status Choose(const RowRequest& request);
  absl::Status Allocate();
  absl::Status MakePlan();

  CudaDevice* const device_;
  Registry registry_;
  const Row* row_ = nullptr;
  Problem problem_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> memory_;
  Operands operands_;
  void* workspace_ = nullptr;
  PlanPtr plan_;
};

}  // namespace warpcall::testing
