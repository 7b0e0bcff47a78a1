#include "support/run_tasks.h"

#include <doctest/doctest.h>

#include <atomic>
#include <new>
#include <vector>

namespace graphpipe {

TEST_CASE("every task runs once, on one thread or several") {
  for (const int threads : {0, 1, 2, 8}) {
    std::vector<std::atomic<int>> runs(100);
    run_tasks(runs.size(), threads, [&](size_t task) { ++runs[task]; });
    for (const std::atomic<int>& count : runs) CHECK(count == 1);
  }
  run_tasks(0, 4, [](size_t) { FAIL("there is no task"); });
}

TEST_CASE("an exception of a task reaches the caller after all threads have ended") {
  for (const int threads : {1, 4}) {
    std::atomic<int> begun = 0, ended = 0;
    CHECK_THROWS_AS(run_tasks(50, threads,
                              [&](size_t task) {
                                ++begun;
                                if (task == 3) throw std::bad_alloc();
                                ++ended;
                              }),
                    std::bad_alloc);
    CHECK(begun == ended + 1);
  }
}

}  // namespace graphpipe
