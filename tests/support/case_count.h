#pragma once

#include <cstdint>
#include <cstdlib>

namespace graphpipe::tests {

/// Whether every case is to run: `scripts/test --all`. The laws that take longest otherwise run on some of their cases,
/// of every kind, so that a change is tested sooner.
inline bool all_cases() { return std::getenv("GRAPHPIPE_TEST_ALL") != nullptr; }

/// How many cases of a law to run: `some`, or `all` of them.
inline uint64_t case_count(uint64_t some, uint64_t all) { return all_cases() ? all : some; }

}  // namespace graphpipe::tests
