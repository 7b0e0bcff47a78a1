#pragma once
// A bijection that spreads every bit of its argument over the result: the output function of SplitMix64 (Steele, Lea
// and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

#include <cstdint>

namespace graphpipe {

/// A generator adds this to its state after each number (the golden ratio of 2^64).
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;

constexpr uint64_t splitmix64(uint64_t value) {
  value += kSplitMixStep;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace graphpipe
