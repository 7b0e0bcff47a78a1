#pragma once
// First-fit: buffers one after the other, each at the lowest offset where it lies between those before it.
//
// Example: X of 1 byte in sections [0, 2), Y of 1 in [1, 3), Z of 2 in [2, 3). In the order X, Y, Z they lie at 0, 1
// and 2: height 4. Z sticks out and comes first: in the order Z, X, Y they lie at 0, 0 and 2, height 3.

#include "support/section_buffer.h"

namespace graphpipe {

struct FirstFit {
  std::vector<int64_t> offsets;
  int64_t height = 0;
};

/// `order` holds every index once. Time: the square of the buffers, a few instructions a pair; what finds room low sees
/// few of the others.
FirstFit first_fit(const std::vector<SectionBuffer>& buffers, const std::vector<int>& order);

/// The lowest of several orders, each improved by placing earlier what stuck out (as "squeaky wheel" optimisation:
/// Joslin and Clements, JAIR 10, 1999). Ends early at `goal`.
FirstFit best_first_fit(const std::vector<SectionBuffer>& buffers, int64_t goal);

}  // namespace graphpipe
