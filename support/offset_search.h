#pragma once
// Exact search for offsets within a capacity.
//
// Canonical placements alone are searched: none of their buffers can be moved down while the others stay, so each lies
// at 0 or on another. (A placement of the least sum of offsets is one.) Of each open buffer two bounds are kept: the
// *support*, the lowest offset above the placed ones that live together with it, and the *lowest* offset that the
// search has left to it. In each section of time the *floor* is the least `lowest` of its open buffers.
//
// Branching is local: a valley is a run of sections of equal floor between higher ones. In one section of a valley
// either one of the buffers that can start at the floor does so, or none does, and they are raised. No order of
// placements in different places of the timeline is enumerated, as it is where offsets must ascend, so that failures
// are found where they arise. Open buffers that fall into parts with no common section are solved one by one.
//
// Pruned is what exceeds the capacity in a section (the open buffers from one height upwards, stacked), whatever leaves
// room beneath all others for a buffer that was raised, and states that failed before (by a 64-bit hash: of a million
// states, two collide with a chance of 1 in 30 million; a collision could hide a placement, never make a wrong one).
// Sections gain weight by failures, and heavy ones are branched on first (as constraints in Boussemart et al.,
// "Boosting systematic search by weighting constraints", ECAI 2004); several strategies take turns, with limits that
// double.
//
// Example: A of 2 bytes in sections [0, 2), B of 3 in [1, 3), C of 2 in [2, 3), capacity 5. A at the floor of section 0
// raises B to 2, so section 2 is a valley in which C alone can start at 0; B stays at 2. Within 4 nothing is tried: A
// and B exceed it in section 1.

#include "support/section_buffer.h"

namespace graphpipe {

enum class SearchEnd : uint8_t { kFound, kNone, kOutOfSteps };

struct OffsetSearchResult {
  SearchEnd end = SearchEnd::kOutOfSteps;
  /// Where found.
  std::vector<int64_t> offsets;
};

/// Sizes > 0. `steps` are visits of a section by a buffer; those taken are subtracted.
OffsetSearchResult search_offsets(const std::vector<SectionBuffer>& buffers, int64_t capacity, int64_t& steps);

}  // namespace graphpipe
