#include "support/run_tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace graphpipe {

void run_tasks(size_t count, int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first;
  const auto loop = [&] {
    try {
      for (size_t task = next++; task < count; task = next++) work(task);
    } catch (...) {
      next = count;
      const std::scoped_lock lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < std::min(count, static_cast<size_t>(std::max(threads, 1))); ++i) helpers.emplace_back(loop);
    loop();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace graphpipe
