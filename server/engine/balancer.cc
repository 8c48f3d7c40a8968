#include "server/engine/balancer.h"

#include <utility>

namespace warpcall {

DeviceLoad& DeviceLoad::operator=(DeviceLoad&& other) noexcept {
  std::swap(balancer_, other.balancer_);
  std::swap(device_, other.device_);
  std::swap(ns_, other.ns_);
  return *this;
}

DeviceLoad::~DeviceLoad() {
  if (balancer_ != nullptr) balancer_->Leave(device_, ns_);
}

void Balancer::AddDevice() {
  absl::MutexLock lock(&mutex_);
  devices_.emplace_back();
}

DeviceLoad Balancer::Choose(absl::Span<const int> devices, int64_t ns) {
  absl::MutexLock lock(&mutex_);
  int best = devices.front();
  for (const int device : devices)
    if (devices_[static_cast<size_t>(device)] < devices_[static_cast<size_t>(best)]) best = device;
  return Enter(best, ns);
}

DeviceLoad Balancer::Settle(DeviceLoad chosen, int device, int64_t ns) {
  absl::MutexLock lock(&mutex_);
  if (chosen.device() != device) return Enter(device, ns);
  devices_[static_cast<size_t>(device)].load_ns += ns - chosen.ns_;
  chosen.ns_ = ns;
  return chosen;
}

DeviceLoad Balancer::Enter(int device, int64_t ns) {
  Books& books = devices_[static_cast<size_t>(device)];
  books.load_ns += ns;
  books.last_turn = ++turns_;
  return DeviceLoad(this, device, ns);
}

void Balancer::Leave(int device, int64_t ns) {
  absl::MutexLock lock(&mutex_);
  devices_[static_cast<size_t>(device)].load_ns -= ns;
}

int64_t Balancer::load_ns(int device) const {
  absl::MutexLock lock(&mutex_);
  return devices_[static_cast<size_t>(device)].load_ns;
}

}  // namespace warpcall
