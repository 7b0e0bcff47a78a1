// Reading ahead: what is begun is read without anybody asking, each request once, and errors come where they belong.

#include "runtime/io/prefetch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>

using namespace graphpipe::runtime;

namespace {

const DataRow kRow{.name = "x"};

/// A read that is worth another thread.
constexpr std::chrono::microseconds kSlow(200);

std::vector<std::byte> bytes_of(int64_t number) { return std::vector<std::byte>(3, std::byte(number)); }

// Waits for what another thread does; far longer than it takes.
template <typename Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

}  // namespace

TEST_CASE("what is begun is read in its order while nobody waits, once each") {
  std::mutex mutex;
  std::vector<int64_t> read;
  Prefetch prefetch([&](const ReadRequest& request) {
    const std::lock_guard lock(mutex);
    read.push_back(request.range.first);
    return bytes_of(request.range.first);
  });
  for (const int64_t first : {0, 2, 4}) prefetch.begin({&kRow, 1, {first, first + 2}});
  prefetch.begin({&kRow, 1, {2, 4}});
  CHECK(comes_true([&] {
    const std::lock_guard lock(mutex);
    return read.size() == 3;
  }));
  for (const int64_t first : {4, 0, 2}) CHECK((prefetch.take({&kRow, 1, {first, first + 2}}) == bytes_of(first)));
  CHECK(read == std::vector<int64_t>{0, 2, 4});
  // Taken, never begun, of another step.
  CHECK_FALSE(prefetch.take({&kRow, 1, {0, 2}}).has_value());
  CHECK_FALSE(prefetch.take({&kRow, 1, {0, 1}}).has_value());
  CHECK_FALSE(prefetch.take({&kRow, 2, {0, 2}}).has_value());
}

TEST_CASE("taking waits for what is being read, and a read that fails leaves nothing") {
  std::atomic<bool> may_go = false;
  Prefetch prefetch([&](const ReadRequest& request) {
    while (!may_go) std::this_thread::yield();
    if (request.step == 2) throw std::runtime_error("no such row");
    return bytes_of(request.step);
  });
  prefetch.begin({&kRow, 1, {0, 2}});
  prefetch.begin({&kRow, 2, {0, 2}});
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    may_go = true;
  });
  CHECK((prefetch.take({&kRow, 1, {0, 2}}) == bytes_of(1)));
  CHECK_FALSE(prefetch.take({&kRow, 2, {0, 2}}).has_value());
  releases.join();
}

TEST_CASE("items that a step was expected to ask for and did not are let go") {
  std::atomic<int> reads = 0;
  Prefetch prefetch([&](const ReadRequest& request) {
    std::this_thread::sleep_for(kSlow);
    ++reads;
    return bytes_of(request.step);
  });
  for (int64_t step = 0; step < 50; ++step) {
    prefetch.begin({&kRow, step, {0, 2}});
    CHECK(comes_true([&] { return reads == step + 1; }));
  }
  prefetch.begin({&kRow, 100, {0, 2}});
  CHECK((prefetch.take({&kRow, 100, {0, 2}}) == bytes_of(100)));
  for (int64_t step = 0; step < 49; ++step) CHECK_FALSE(prefetch.take({&kRow, step, {0, 2}}).has_value());
}

TEST_CASE("what is quicker read than handed over is left to who takes it, until a read is slow") {
  std::atomic<int> reads = 0;
  Prefetch prefetch([&](const ReadRequest&) {
    ++reads;
    return std::vector<std::byte>();
  });
  for (int i = 0; i < 100; ++i) prefetch.took(1e-6);
  prefetch.begin({&kRow, 1, {0, 2}});
  CHECK_FALSE(prefetch.take({&kRow, 1, {0, 2}}).has_value());
  prefetch.took(1e-3);
  prefetch.begin({&kRow, 2, {0, 2}});
  CHECK(prefetch.take({&kRow, 2, {0, 2}}).has_value());
  CHECK(reads == 1);
}
