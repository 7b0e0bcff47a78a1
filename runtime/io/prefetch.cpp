#include "runtime/io/prefetch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "support/stopwatch.h"

namespace graphpipe::runtime {
namespace {

/// About what it takes to wake a thread, and to be woken by it.
constexpr double kQuickSeconds = 20e-6;
/// As many in a row are no accident.
constexpr int kFewReads = 32;

}  // namespace

Prefetch::Prefetch(Read read) : read_(std::move(read)), thread_([this] { run(); }) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetch::begin(const ReadRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    // Drop what an earlier step was expected to ask for but did not.
    while (!items_.empty() && items_.begin()->second.is_read && std::get<0>(items_.begin()->first) + 1 < request.step)
      items_.erase(items_.begin());
    if (quick_reads_ >= kFewReads) return;
    if (!items_.try_emplace(key_of(request)).second) return;
    queue_.push_back(request);
  }
  changed_.notify_all();
}

std::optional<std::vector<std::byte>> Prefetch::take(const ReadRequest& request) {
  std::unique_lock lock(mutex_);
  const auto found = items_.find(key_of(request));
  if (found == items_.end()) return std::nullopt;
  changed_.wait(lock, [&] { return found->second.is_read; });
  return std::move(items_.extract(found).mapped().bytes);
}

void Prefetch::took(double seconds) {
  const std::lock_guard lock(mutex_);
  note(seconds);
}

void Prefetch::note(double seconds) {
  quick_reads_ = seconds < kQuickSeconds ? std::min(quick_reads_ + 1, kFewReads) : 0;
}

void Prefetch::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    const ReadRequest request = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const Stopwatch watch;
    std::optional<std::vector<std::byte>> bytes;
    try {
      bytes = read_(request);
    } catch (const std::exception&) {
      // The step that asks for it reads it again, and fails there.
    }
    const double seconds = watch.seconds();
    lock.lock();
    note(seconds);
    Item& item = items_.at(key_of(request));
    item.bytes = std::move(bytes);
    item.is_read = true;
    changed_.notify_all();
  }
}

}  // namespace graphpipe::runtime
