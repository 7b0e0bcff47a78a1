#pragma once
// What one core does per second with the kernels of the programs (part of calibrate.h).

#include <cstdint>
#include <functional>

namespace graphpipe::runtime {

/// Seconds of one call: the fastest of several rounds. `finish` waits for queued work, if calls queue any.
double seconds_of(
    const std::function<void()>& call, const std::function<void()>& finish = [] {});

/// FLOP/s of kernels in a 16-bit type.
struct SixteenBitRates {
  double products = 0, convolutions = 0, attention = 0;
};

/// FLOP/s of float32 kernels at the sizes of a layer and of those in 16-bit types, bytes per second of memory-bound
/// operators and of weights that fit in no cache, and seconds per call.
struct DeviceRates {
  double products = 0, convolutions = 0, winograd = 0, depthwise = 0, attention = 0, functions = 0;
  SixteenBitRates bfloat16, float16;
  double memory = 0, weights = 0, operator_seconds = 0;
};
DeviceRates measure_rates();

/// Cost of an update of a weight matrix: per tensor, and per byte.
struct UpdateSeconds {
  double tensor = 0, byte = 0;
};
/// Derived from the update time of a float32 matrix with the given numbers of rows and columns. A matrix, since some
/// optimizers have a special update for matrices. `large`: bytes that fit in no cache.
inline constexpr int64_t kBeyondCachesOfCpus = 16 << 20, kBeyondCachesOfGpus = 256 << 20;
UpdateSeconds measure_update(const std::function<double(int64_t rows, int64_t columns)>& seconds,
                             int64_t large = kBeyondCachesOfCpus);

}  // namespace graphpipe::runtime
