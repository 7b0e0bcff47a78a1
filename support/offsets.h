#pragma once
// Static allocation: where in one block of memory each buffer lies, when sizes and lifetimes are known beforehand.
//
// Two buffers that live at the same time must not overlap; the height of the block should be small, or within a
// capacity. (In the literature: dynamic storage allocation, NP-complete.) First-fit in several orders comes first;
// where it leaves a gap to the bound, a depth-first search decides whether a height can be reached.
//
// Ideas of the search that stem from Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
// Machine Learning" (ASPLOS 2023, vol. 4): only canonical placements are searched, in which no buffer can be moved
// down; time is cut into sections whose floors and loads bound the height; what could still slip beneath everything
// that remains is dominated; buffers are tried by total, width and area. What is branched on differs, see
// offset_search.h.
//
// Example: buffers of 2 bytes in [0, 2), 3 in [1, 3) and 2 in [2, 4). Five bytes live at once, so no height is smaller;
// first-fit reaches it with the second at 0 and the two others, which never meet, both at 3.

#include <cstdint>
#include <optional>
#include <vector>

#include "support/units.h"

namespace graphpipe {

/// A buffer lives in [first, end), first < end, in any unit of time; only the order of the times counts.
struct TimedBuffer {
  int64_t first = 0, end = 0;
  Bytes size;                  // >= 0
  Bytes alignment = Bytes(1);  // >= 1: the offset is a multiple of it
};

struct OffsetOptions {
  /// The first placement within it is taken, whatever smaller ones there are. Without: the smallest height found.
  std::optional<Bytes> capacity = std::nullopt;
  /// Limit of the search, in visits of a section of time by a buffer (a hundred million are about a second). A count
  /// and not a time: equal input gives equal offsets on every machine.
  int64_t max_steps = 500'000'000;
  /// More buffers than that are placed by first-fit alone: the search keeps a copy of what is open per level.
  size_t max_searched = 2000;
};

/// How a plan places the tensors of a step, device by device: no more than a tenth of a second of search after
/// first-fit, and none among many buffers.
inline constexpr OffsetOptions kStepOffsets = {.max_steps = 10'000'000, .max_searched = 500};
/// The steps of the program that runs it, which has the small tensors of kernels too and should stay within what the
/// plan says: a second at most, while the run waits.
inline constexpr int64_t kRunSteps = 100'000'000;
/// Alignment of a step's tensors, in bytes: that of LibTorch's allocator.
inline constexpr int64_t kStepAlignment = 64;

struct OffsetPlan {
  /// Per buffer. Valid always, also where the capacity is not met.
  std::vector<Bytes> offsets;
  /// Highest end of a buffer.
  Bytes height;
  /// No placement is lower: the most bytes that live at once, with what their alignments cost, or more where a search
  /// has excluded it. Above the capacity: nothing fits into it. Equal to the height: the height is the smallest.
  Bytes lower_bound;
};

OffsetPlan plan_offsets(const std::vector<TimedBuffer>& buffers, const OffsetOptions& options = {});

}  // namespace graphpipe
