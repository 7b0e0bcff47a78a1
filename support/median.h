#pragma once
// The middle of what was measured, which single bad measurements do not move.

#include <algorithm>
#include <vector>

namespace graphpipe {

/// The mean of the middle two where their count is even; 0 where there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace graphpipe
