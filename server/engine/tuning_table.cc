#include "server/engine/tuning_table.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

bool IsRight(const TunedClass& measured, int row) {
  return absl::c_any_of(measured.right, [row](const RightRow& right) { return right.row == row; });
}

bool IsWrong(const TunedClass& measured, int row) {
  return absl::c_any_of(measured.wrong, [row](const WrongRow& wrong) { return wrong.row == row; });
}

// Keeps wrong implementations wrong, unless another version has measured them right.
void KeepWrong(const TunedClass& before, TunedClass* measured) {
  for (const WrongRow& wrong : before.wrong) {
    if (IsWrong(*measured, wrong.row)) continue;
    if (IsRight(*measured, wrong.row)) {
      if (wrong.server_version != measured->stamp.server_version) continue;
      std::erase_if(measured->right, [&](const RightRow& right) { return right.row == wrong.row; });
    }
    measured->wrong.push_back(wrong);
  }
}

// Ratio of the measured problem's time to the former one's, which may be less than half or more
// than twice as much work: by the implementations that ran both, or else by the work.
double Longer(const Op& op, const TunedClass& before, const TunedClass& measured) {
  if (before.problem == measured.problem) return 1;
  std::vector<double> ratios;
  for (const RightRow& right : measured.right)
    for (const RightRow& known : before.right)
      if (known.row == right.row) ratios.push_back(right.median_ns / known.median_ns);
  if (!ratios.empty()) {
    absl::c_sort(ratios);
    return ratios[ratios.size() / 2];
  }
  const Work then = op.work(before.problem);
  const Work now = op.work(measured.problem);
  if (then.flops > 0 && now.flops > 0)
    return static_cast<double>(now.flops) / static_cast<double>(then.flops);
  if (then.bytes <= 0 || now.bytes <= 0) return 1;
  return static_cast<double>(now.bytes) / static_cast<double>(then.bytes);
}

// Keeps the times that this version measured for implementations left out this time, scaled to the
// new problem.
void KeepRight(const Op& op, const TunedClass& before, TunedClass* measured) {
  if (before.stamp.server_version != measured->stamp.server_version) return;
  const double longer = Longer(op, before, *measured);
  for (RightRow right : before.right) {
    if (IsRight(*measured, right.row) || IsWrong(*measured, right.row)) continue;
    for (double* const ns : {&right.median_ns, &right.median_low_ns, &right.median_high_ns})
      *ns *= longer;
    measured->right.push_back(right);
  }
}

}  // namespace

std::string DeviceModelOf(const DeviceProperties& device) {
  return absl::StrCat(device.description, ", ", device.multiprocessors,
                      device.kind == DeviceKind::kCpu ? " threads" : " multiprocessors");
}

void SortByPreference(std::vector<RightRow>* rows) {
  absl::c_stable_sort(
      *rows, [](const RightRow& a, const RightRow& b) { return a.median_ns < b.median_ns; });
}

TuningTable::TuningTable(const Registry& registry)
    : registry_(registry), tuned_(new std::atomic<int>[registry.kernels().size()]) {
  for (size_t i = 0; i < registry.kernels().size(); ++i) tuned_[i].store(0);
}

void TuningTable::AddDevice(const DeviceProperties& device) {
  absl::MutexLock lock(&mutex_);
  model_of_device_.push_back(ModelNumber(DeviceModelOf(device)));
}

uint32_t TuningTable::ModelNumber(absl::string_view device_model) {
  const auto found = absl::c_find(models_, device_model);
  const auto number = static_cast<uint32_t>(found - models_.begin());
  if (found == models_.end()) models_.emplace_back(device_model);
  return number;
}

TuningTable::Key TuningTable::KeyOf(const Op& op, const Problem& problem, int kernel,
                                    uint32_t model) const {
  Key key = ClassOf(op, problem);
  key.push_back(static_cast<uint32_t>(kernel));
  key.push_back(model);
  return key;
}

std::shared_ptr<const TunedClass> TuningTable::Find(const Kernel& kernel, const Problem& problem,
                                                    int device) const {
  WARPCALL_CHECK(static_cast<size_t>(kernel.id) < registry_.kernels().size(), kernel.id);
  WARPCALL_CHECK(static_cast<size_t>(device) < model_of_device_.size(), device);
  if (tuned_[static_cast<size_t>(kernel.id)].load(std::memory_order_acquire) == 0) return nullptr;
  const Key key =
      KeyOf(*kernel.op, problem, kernel.id, model_of_device_[static_cast<size_t>(device)]);
  absl::MutexLock lock(&mutex_);
  const auto found = classes_.find(key);
  return found == classes_.end() ? nullptr : found->second;
}

std::shared_ptr<const TunedClass> TuningTable::Take(TunedClass measured) {
  const auto kernel = static_cast<size_t>(measured.kernel);
  WARPCALL_CHECK(kernel < registry_.kernels().size(), measured.kernel);
  for (const RightRow& right : measured.right)
    WARPCALL_CHECK(static_cast<size_t>(right.row) < registry_.rows().size(), right.row);
  for (const WrongRow& wrong : measured.wrong)
    WARPCALL_CHECK(static_cast<size_t>(wrong.row) < registry_.rows().size(), wrong.row);
  const Op& op = *registry_.kernels()[kernel].op;
  absl::MutexLock lock(&mutex_);
  const Key key = KeyOf(op, measured.problem, measured.kernel, ModelNumber(measured.device_model));
  std::shared_ptr<const TunedClass>& slot = classes_[key];
  std::shared_ptr<const TunedClass> before = std::move(slot);
  if (before != nullptr) {
    KeepWrong(*before, &measured);
    KeepRight(op, *before, &measured);
  }
  SortByPreference(&measured.right);
  slot = std::make_shared<const TunedClass>(std::move(measured));
  if (classes_.size() > kClassesMax) DropOldest();
  WARPCALL_DCHECK(classes_.size() <= kClassesMax, classes_.size());
  tuned_[kernel].fetch_add(1, std::memory_order_release);
  return before;
}

void TuningTable::DropOldest() {
  classes_.erase(absl::c_min_element(classes_, [](const auto& a, const auto& b) {
    return a.second->stamp.started_unix_ns < b.second->stamp.started_unix_ns;
  }));
}

std::vector<std::shared_ptr<const TunedClass>> TuningTable::Classes() const {
  std::vector<std::shared_ptr<const TunedClass>> classes;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, tuned] : classes_) classes.push_back(tuned);
  return classes;
}

}  // namespace warpcall
