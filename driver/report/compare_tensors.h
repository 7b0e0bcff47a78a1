#pragma once
// Compares what two training runs saved.

#include <string>

#include "support/result.h"

namespace graphpipe::driver {

/// Whether two files hold the same bytes. Errors: kUnreadableFile.
Result<bool> same_bytes(const std::string& a, const std::string& b);

/// The largest |a - b| / |b| over the float tensors of two safetensors files, in Euclidean norms per tensor; infinite
/// where names or shapes differ or a number is undefined. A tensor whose norm is below 1e-3 of the largest one's is
/// measured against that: where a gradient is zero but for rounding (the key bias of an attention, which a softmax does
/// not see), nothing is left to compare.
Result<double> largest_difference(const std::string& path, const std::string& reference);

}  // namespace graphpipe::driver
