// Shows race detectors an order that gRPC guarantees by means they don't see.
#pragma once

#include <atomic>
#include <cstdint>

namespace warpcall {

// gRPC creates a call on one thread and delivers events on others, each after the earlier ones. A
// writer of the call's state ends with Give; an event handler begins with Take.
class Handover {
 public:
  void Give() { given_.fetch_add(1, std::memory_order_acq_rel); }
  void Take() const { given_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint32_t> given_{0};
};

}  // namespace warpcall
