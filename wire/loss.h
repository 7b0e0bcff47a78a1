#pragma once
// How the divisor N of a step's loss follows from the step's data (docs/semantics.md, section 4): what the graph states
// and what generated programs compute.

#include <cstdint>

namespace graphpipe::wire {

enum class LossNormalizer : uint8_t {
  kSamples,           // N = samples times the elements of a sample: means over samples or elements
  kCountedPositions,  // N = the label's positions that count: means over labels
  kOne,               // a plain sum
};

/// Elements [first, last) of a sample.
struct PositionRange {
  int64_t first = 0;
  int64_t last = 0;
  constexpr bool operator==(const PositionRange&) const = default;
};

}  // namespace graphpipe::wire
