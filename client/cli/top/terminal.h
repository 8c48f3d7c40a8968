// The terminal while `warpcall top` shows one screen after the other.
#pragma once

#include <termios.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace warpcall::cli {

// A key: its character, or one of these.
enum Key : int { kEscape = 0x1b, kEnter = '\r', kBackspace = 0x7f, kLeft = 0x100, kRight };

// Wakes a poll of another thread, or of the thread that a signal interrupts.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  int descriptor() const { return descriptor_; }  // readable once it was set
  void Set() const;
  void Clear() const;

 private:
  const int descriptor_;
};

// While it lives, stdout, a terminal, shows the alternate screen, and stdin, if it is a terminal,
// gives keys one by one, unseen. The destructor gives both back as they were. At most one exists.
class FullScreen {
 public:
  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // Shows the first lines of `text`, as many as there are rows but one, and `bottom` in the last.
  void Show(absl::string_view text, absl::string_view bottom) const;

  // Set after the window's size has changed.
  const Event& resized() const { return resized_; }
  // stdin if it gives keys, else -1.
  int keys() const { return has_keys_ ? 0 : -1; }
  // The keys that were pressed since the last call. False: stdin has ended.
  bool ReadKeys(std::vector<int>* pressed);

 private:
  termios before_ = {};
  bool has_keys_ = false;
  const Event resized_;
};

}  // namespace warpcall::cli
