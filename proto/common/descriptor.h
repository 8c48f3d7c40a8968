#pragma once

#include <unistd.h>

#include <utility>

namespace warpcall {

// Owns a file descriptor. Move-only.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  // Closes the descriptor that it owned.
  Descriptor& operator=(Descriptor other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }  // negative: there is none
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace warpcall
