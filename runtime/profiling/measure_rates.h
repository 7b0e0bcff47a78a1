#pragma once
// What one core does a second, in the kernels of the programs (part of calibrate.h).

#include <cstdint>
#include <functional>

namespace graphpipe::runtime {

/// Seconds of one call: of several rounds the fastest counts. `finish` waits for what calls have queued, if they do.
double seconds_of(
    const std::function<void()>& call, const std::function<void()>& finish = [] {});

/// FLOP/s of float32 kernels at the sizes of a layer, bytes a second of what moves more than it computes, and seconds
/// of a call.
struct DeviceRates {
  double products = 0, convolutions = 0, attention = 0, memory = 0, operator_seconds = 0;
};
DeviceRates measure_rates();

/// Of an update of a weight matrix: per tensor, and per byte of it.
struct UpdateSeconds {
  double tensor = 0, byte = 0;
};
/// By what updates of a float32 matrix of so many rows and columns take. A matrix: some optimizers update those in a
/// way of their own. `large`: bytes that no cache holds.
inline constexpr int64_t kBeyondCachesOfCpus = 16 << 20, kBeyondCachesOfGpus = 256 << 20;
UpdateSeconds measure_update(const std::function<double(int64_t rows, int64_t columns)>& seconds,
                             int64_t large = kBeyondCachesOfCpus);

}  // namespace graphpipe::runtime
