#pragma once
// How random numbers are made of their keys, on CPUs and in the kernels of GPUs, which agree: Philox4x32-10 (Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns the counter (block within the sample, sample) and
// the key from (seed, step, node) into four words, each of which becomes the number of one element.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "support/splitmix64.h"

#ifdef __CUDACC__
#define GRAPHPIPE_HOST_DEVICE __host__ __device__
#else
#define GRAPHPIPE_HOST_DEVICE
#endif

namespace graphpipe::runtime {

inline constexpr int64_t kWordsPerBlock = 4;

GRAPHPIPE_HOST_DEVICE inline uint64_t philox_key(uint64_t seed, uint64_t step, uint32_t node) {
  return splitmix64(splitmix64(splitmix64(seed) ^ step) ^ node);
}

/// One of the rounds, with the two halves of its key, which philox_next_key() changes for the next round.
GRAPHPIPE_HOST_DEVICE inline void philox_round(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0,
                                               uint32_t k1) {
  const uint64_t product0 = uint64_t{0xD2511F53U} * c0, product1 = uint64_t{0xCD9E8D57U} * c2;
  c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
  c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
  c1 = static_cast<uint32_t>(product1);
  c3 = static_cast<uint32_t>(product0);
}
inline constexpr int kPhiloxRounds = 10;
GRAPHPIPE_HOST_DEVICE inline void philox_next_key(uint32_t& k0, uint32_t& k1) {
  k0 += 0x9E3779B9U;
  k1 += 0xBB67AE85U;
}

// Each turns two words into two numbers of type T, float or double.

/// 0 for words below `min_kept`, otherwise `kept`.
struct DropoutNumbers {
  uint64_t min_kept = 0;
  double kept = 1;
  template <typename T>
  GRAPHPIPE_HOST_DEVICE void operator()(const uint32_t* words, T* values) const {
    for (int i = 0; i < 2; ++i) values[i] = words[i] >= min_kept ? static_cast<T>(kept) : T{0};
  }
};

/// From the upper 24 bits of a word, in [low, high); `low` if the range is empty.
struct UniformNumbers {
  UniformNumbers(double from, double to)
      : low(from), range(to - from), last_float(last<float>(from, to)), last_double(last<double>(from, to)) {}
  template <typename T>
  GRAPHPIPE_HOST_DEVICE void operator()(const uint32_t* words, T* values) const {
    // A value next to `high` may have been rounded up to it.
    const T largest = sizeof(T) == sizeof(float) ? static_cast<T>(last_float) : static_cast<T>(last_double);
    for (int i = 0; i < 2; ++i) {
      const auto value = static_cast<T>(low + range * static_cast<double>(words[i] >> 8) * 0x1p-24);
      values[i] = range > 0 && value > largest ? largest : value;
    }
  }

  double low, range;
  float last_float;
  double last_double;

 private:
  template <typename T>
  static T last(double low, double high) {
    constexpr double kLargest = std::numeric_limits<T>::max();
    const auto from = static_cast<T>(std::clamp(low, -kLargest, kLargest));
    const auto to = static_cast<T>(std::clamp(high, -kLargest, kLargest));
    return high > low ? std::nextafter(to, from) : from;
  }
};

/// By Box and Muller: two uniforms, two normals.
struct NormalNumbers {
  double mean = 0, deviation = 1;
  template <typename T>
  GRAPHPIPE_HOST_DEVICE void operator()(const uint32_t* words, T* values) const {
    constexpr double kTwoToMinus32 = 1.0 / 4294967296.0;
    const double radius = std::sqrt(-2 * std::log((static_cast<double>(words[0]) + 1) * kTwoToMinus32));
    const double angle = 2 * std::numbers::pi * static_cast<double>(words[1]) * kTwoToMinus32;
    values[0] = static_cast<T>(mean + deviation * radius * std::cos(angle));
    values[1] = static_cast<T>(mean + deviation * radius * std::sin(angle));
  }
};

}  // namespace graphpipe::runtime
