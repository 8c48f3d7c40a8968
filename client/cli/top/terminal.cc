#include "client/cli/top/terminal.h"

#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/common/output.h"

namespace warpcall::cli {
namespace {

// Alternate screen, no cursor, no line that runs on in the next.
constexpr char kEnterScreen[] = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr char kLeaveScreen[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr size_t kRowsDefault = 24;

// All that the handler can reach.
std::atomic<const Event*> resize_event{nullptr};
static_assert(std::atomic<const Event*>::is_always_lock_free);

void OnResize(int) {
  const int saved_errno = errno;
  if (const Event* const event = resize_event; event != nullptr) event->Set();
  errno = saved_errno;
}

void HandleResize(void (*action)(int)) {
  struct sigaction handler = {};
  handler.sa_handler = action;
  handler.sa_flags = SA_RESTART;
  sigaction(SIGWINCH, &handler, nullptr);
}

size_t Rows() {
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  return known ? size.ws_row : kRowsDefault;
}

// The key that `bytes` begin with, which lose it.
int TakeKey(absl::string_view* bytes) {
  // Arrows are ESC [ C and ESC [ D, or ESC O C where the terminal is in its other mode.
  if (bytes->size() >= 3 && (*bytes)[0] == kEscape && ((*bytes)[1] == '[' || (*bytes)[1] == 'O')) {
    size_t end = 2;  // other keys have parameters before their last byte
    while (end + 1 < bytes->size() && ((*bytes)[end] < 0x40 || (*bytes)[end] > 0x7e)) ++end;
    const char last = (*bytes)[end];
    bytes->remove_prefix(end + 1);
    return last == 'C' ? kRight : last == 'D' ? kLeft : 0;
  }
  const int key = static_cast<unsigned char>(bytes->front());
  bytes->remove_prefix(1);
  return key == '\n' ? int{kEnter} : key == '\b' ? int{kBackspace} : key;
}

}  // namespace

Event::Event() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Event::~Event() { close(descriptor_); }

void Event::Set() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the event is set anyway.
  [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof(one));
}

void Event::Clear() const {
  uint64_t count;
  [[maybe_unused]] const ssize_t bytes = read(descriptor_, &count, sizeof(count));
}

FullScreen::FullScreen() {
  resize_event = &resized_;
  HandleResize(OnResize);
  if (tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    // A program that is stopped could not give the screen back.
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    has_keys_ = tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) == 0;
  }
  PrintData(kEnterScreen);
  FlushOutput();
}

FullScreen::~FullScreen() {
  PrintData(kLeaveScreen);
  FlushOutput();
  if (has_keys_) tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  HandleResize(SIG_DFL);
  resize_event = nullptr;
}

void FullScreen::Show(absl::string_view text, absl::string_view bottom) const {
  const size_t rows = Rows();
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  lines.resize(std::max<size_t>(rows, 1) - 1);
  // Each line is written over the old one, so that nothing flickers.
  std::string frame = "\x1b[H";
  for (const absl::string_view line : lines) absl::StrAppend(&frame, line, "\x1b[K\r\n");
  absl::StrAppend(&frame, bottom, "\x1b[K");
  PrintData(frame);
  FlushOutput();
}

bool FullScreen::ReadKeys(std::vector<int>* pressed) {
  char bytes[256];
  const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  absl::string_view left(bytes, static_cast<size_t>(got));
  while (!left.empty()) pressed->push_back(TakeKey(&left));
  if (got == 0) has_keys_ = false;
  return got > 0;
}

}  // namespace warpcall::cli
