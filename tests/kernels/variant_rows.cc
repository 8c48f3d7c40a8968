#include "tests/kernels/variant_rows.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/plan.h"
#include "tests/kernels/run_row.h"

namespace warpcall::testing {

std::string VariantRow::Name() const {
  return absl::StrCat(kernel->op->name, " ", row->name, " ", DataTypeName(type));
}

const DeviceProperties& VariantRow::Device() const {
  if (row->device_kind == DeviceKind::kCpu) return TestDeviceProperties();
  return TestGpuProperties() != nullptr ? *TestGpuProperties() : MadeUpH200();
}

absl::Status VariantRow::Takes(const Problem& problem, int variant) const {
  return row->plan(problem, {.device = &Device(), .variant = variant}).status();
}

int VariantRow::Chosen(const Problem& problem) const {
  const absl::StatusOr<PlanPtr> plan = row->plan(problem, {.device = &Device()});
  return plan.ok() ? (*plan)->traits().variant : kRowsChoice;
}

std::vector<VariantRow> RowsWithVariants() {
  std::vector<VariantRow> rows;
  for (const Kernel& kernel : FullRegistry().kernels()) {
    for (const int id : kernel.rows) {
      const Implementation& row = FullRegistry().rows()[id].implementation;
      if (row.variant_names == nullptr) continue;
      for (const DataType type : row.data_types) {
        const VariantRow with_variants = {&kernel, &row, type};
        // A build without Triton has its rows without their kernels.
        if (row.family == Family::kTriton && with_variants.Names().empty()) continue;
        rows.push_back(with_variants);
      }
    }
  }
  return rows;
}

const DeviceProperties& MadeUpH200() {
  static const auto* const properties = new DeviceProperties{
      .name = "cuda:0",
      .kind = DeviceKind::kCuda,
      .description = "made up",
      .memory_bytes = int64_t{141} << 30,
      .multiprocessors = 132,
      .threads_per_multiprocessor = 2048,
      .l2_bytes = int64_t{50} << 20,
      .shared_memory_per_block_bytes = 227 << 10,
      .compute_capability = "9.0",
      .architecture = 90,
      .ordinal = 0,
      .pci_bus_id = "",
  };
  return *properties;
}

bool RunsHere(const Implementation& row) {
  if (row.device_kind == DeviceKind::kCuda && TestGpuProperties() == nullptr) return false;
  const char* const row_wanted = std::getenv("WARPCALL_TEST_ROW");
  if (row_wanted != nullptr && std::string(row_wanted) != row.name) return false;
  const char* const wanted = std::getenv("WARPCALL_TEST_DEVICE_KIND");
  return wanted == nullptr || std::string(wanted) == DeviceKindName(row.device_kind);
}

cpu::ThreadPool& TruthPool() {
  static auto* const pool =
      new cpu::ThreadPool(std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16));
  return *pool;
}

int64_t TestElementsMax() {
  const char* const text = std::getenv("WARPCALL_TEST_ELEMENTS_MAX");
  int64_t elements_max = 0;
  return text != nullptr && absl::SimpleAtoi(text, &elements_max) ? elements_max : 0;
}

}  // namespace warpcall::testing
