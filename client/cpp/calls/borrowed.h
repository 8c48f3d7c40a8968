// Bytes that a caller lends for the length of a call. Internal to the library.
#pragma once

#include <memory>

#include "absl/synchronization/notification.h"

namespace warpcall::client {

// Stands in for the owner of borrowed bytes: whoever holds owner() may still read them.
class BorrowedBytes {
 public:
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Waits until nobody else holds owner(). The transport may have bytes of a call that failed in
  // its hands for a while yet, and the caller is free to reuse its memory once we return.
  void WaitUntilReleased() {
    owner_.reset();
    released_->WaitForNotification();
  }

 private:
  const std::shared_ptr<absl::Notification> released_ = std::make_shared<absl::Notification>();
  std::shared_ptr<const void> owner_{&released_,
                                     [released = released_](const void*) { released->Notify(); }};
};

}  // namespace warpcall::client
