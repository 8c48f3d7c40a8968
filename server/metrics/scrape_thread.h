// Renders documents on a thread of its own, so that the thread of the operators' port never waits
// for a rendering.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/metrics/http_message.h"

namespace warpcall {

// One rendering at a time. All requests that come during a rendering share the next one, which
// begins after them and so shows everything that they may have seen before. Thread-safe.
class ScrapeThread {
 public:
  struct Text {
    uint64_t number = 0;                      // number of the newest rendering that has ended
    std::shared_ptr<const std::string> text;  // null: already taken
  };

  static constexpr ScrapeKind kKinds[] = {
      {Document::kPrometheus, false},  {Document::kPrometheus, true},
      {Document::kOpenMetrics, false}, {Document::kOpenMetrics, true},
      {Document::kStatusPage, false},  {Document::kStatusPage, true},
      {Document::kStatusJson, false},  {Document::kStatusJson, true}};

  // `render` runs on the thread; `done` too, after each rendering. Neither may be null.
  ScrapeThread(std::function<std::string(Document)> render, std::function<void()> done);
  // Waits for a rendering that has begun.
  ~ScrapeThread();

  // Asks for the document as it is after this call: the rendering of this number or a later one.
  uint64_t Request(const ScrapeKind& kind);
  // The newest rendering; gives the text away.
  Text Take(const ScrapeKind& kind);

 private:
  struct Renderings {
    uint64_t asked = 0;
    uint64_t begun = 0;
    Text newest;
  };

  void Run();
  void Render(const ScrapeKind& kind);
  Renderings& Of(const ScrapeKind& kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return renderings_[2 * static_cast<int>(kind.document) + (kind.gzip ? 1 : 0)];
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<std::string(Document)> render_;
  const std::function<void()> done_;
  absl::Mutex mutex_;
  absl::CondVar work_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Renderings renderings_[std::size(kKinds)] ABSL_GUARDED_BY(mutex_);  // in the order of kKinds
  std::thread thread_;
};

// Compresses `text` by gzip (RFC 1952), by zlib's fastest level. Returns "" without memory for
// that, which a scraper takes for a failed scrape.
std::string Gzip(absl::string_view text);

// Puts the calling thread below the threads that answer requests, and above those of the CPU
// device, which compute at 10: a scrape must get through while they are all at work.
void GiveWayToRequests();

}  // namespace warpcall
