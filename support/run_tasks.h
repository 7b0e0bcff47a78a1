#pragma once
// Independent pieces of work on several threads.

#include <cstddef>
#include <functional>

namespace graphpipe {

/// Runs `work(0)` to `work(count - 1)`, each once, on so many threads; the calling one is among them. An exception ends
/// what has not begun, and the first one is thrown again here once all threads have ended.
void run_tasks(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace graphpipe
