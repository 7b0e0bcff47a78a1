#pragma once
// Runs one job at a time in a thread of its own: disk writes that overlap with training.

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace graphpipe::runtime {

class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  BackgroundWriter(const BackgroundWriter&) = delete;
  /// Waits for the job.
  ~BackgroundWriter() { join(); }

  /// Whether no job runs.
  bool is_idle() const { return !running_.load(std::memory_order_acquire); }
  /// Needs: is_idle().
  void start(std::function<void()> job);
  /// Waits for the job. What it threw is left for rethrow().
  void finish() { join(); }
  /// Rethrows what the last job threw, once.
  void rethrow();

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::thread thread_;
  std::atomic<bool> running_ = false;
  std::exception_ptr problem_;
};

}  // namespace graphpipe::runtime
