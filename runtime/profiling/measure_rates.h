#pragma once
// What one core does a second, in the kernels of the programs (part of calibrate.h).

#include <functional>

namespace graphpipe::runtime {

/// Seconds of one call: of several rounds the fastest counts.
double seconds_of(const std::function<void()>& call);

/// FLOP/s of float32 kernels at the sizes of a layer, bytes a second of what moves more than it computes, and seconds
/// of a call.
struct DeviceRates {
  double products = 0, convolutions = 0, attention = 0, memory = 0, operator_seconds = 0;
};
DeviceRates measure_rates();

}  // namespace graphpipe::runtime
