#pragma once

#include <cstddef>
#include <cstdint>

namespace graphpipe::tests {

/// The same numbers on every platform, unlike the distributions of <random>.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1du;
  }
  /// From 0 to limit - 1. Needs: limit >= 1.
  size_t below(size_t limit) { return static_cast<size_t>((next() >> 33) % limit); }

 private:
  uint64_t state_;
};

}  // namespace graphpipe::tests
