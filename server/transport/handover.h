// What gRPC's library orders by means that race detectors do not look into.
#pragma once

#include <atomic>
#include <cstdint>

namespace warpcall {

// gRPC makes a call on one thread and tells it of events on others, each after what came before.
// Who has written to a call ends with Give; who is told of an event by gRPC begins with Take.
class Handover {
 public:
  void Give() { given_.fetch_add(1, std::memory_order_acq_rel); }
  void Take() const { given_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint32_t> given_{0};
};

}  // namespace warpcall
