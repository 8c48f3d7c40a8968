#include "server/metrics/scrape_thread.h"

#include <sys/resource.h>

#include <utility>

namespace warpcall {
namespace {

constexpr int kScrapeNice = 5;
constexpr MetricsFormat kFormats[] = {MetricsFormat::kPrometheus, MetricsFormat::kOpenMetrics};

}  // namespace

void GiveWayToRequests() {
  // Never raises the priority, which root could. Where lowering is refused it stays as it is.
  if (getpriority(PRIO_PROCESS, 0) < kScrapeNice) setpriority(PRIO_PROCESS, 0, kScrapeNice);
}

ScrapeThread::ScrapeThread(std::function<std::string(MetricsFormat)> render,
                           std::function<void()> done)
    : render_(std::move(render)), done_(std::move(done)), thread_([this] { Run(); }) {}

ScrapeThread::~ScrapeThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    work_.Signal();
  }
  thread_.join();
}

uint64_t ScrapeThread::Ask(MetricsFormat format) {
  absl::MutexLock lock(&mutex_);
  Renderings& renderings = Of(format);
  renderings.asked = renderings.begun + 1;
  work_.Signal();
  return renderings.asked;
}

ScrapeThread::Text ScrapeThread::Take(MetricsFormat format) {
  absl::MutexLock lock(&mutex_);
  Text& newest = Of(format).newest;
  return {newest.number, std::move(newest.text)};
}

bool ScrapeThread::HasWork() const {
  for (const Renderings& renderings : renderings_)
    if (renderings.asked > renderings.begun) return true;
  return stopping_;
}

void ScrapeThread::Run() {
  GiveWayToRequests();
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      while (!HasWork()) work_.Wait(&mutex_);
      if (stopping_) return;
    }
    for (const MetricsFormat format : kFormats) Render(format);
  }
}

void ScrapeThread::Render(MetricsFormat format) {
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    Renderings& renderings = Of(format);
    if (renderings.asked == renderings.begun) return;
    number = ++renderings.begun;
  }
  auto text = std::make_shared<const std::string>(render_(format));
  {
    absl::MutexLock lock(&mutex_);
    Of(format).newest = {number, std::move(text)};
  }
  done_();
}

}  // namespace warpcall
