#pragma once
// Buffers as first-fit and the search see them: lifetimes in sections of time, sizes in a common unit.

#include <cstdint>
#include <vector>

namespace graphpipe {

/// Lives in the sections [first, end). Sections begin where a buffer does, so that buffers that live at the same time
/// share one.
struct SectionBuffer {
  int first = 0, end = 0;
  int64_t size = 0, alignment = 1;
};

inline bool live_together(const SectionBuffer& a, const SectionBuffer& b) { return a.first < b.end && b.first < a.end; }

constexpr int64_t aligned_up(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// What buffers are ordered by, most significant first. The three are MiniMalloc's, with the initials of its paper.
enum class BufferKey : uint8_t {
  kTotal,  // most bytes that live at once during its lifetime
  kWidth,  // sections of its lifetime
  kArea,   // width times size
};

/// Indices of the buffers, descending by the keys in turn.
std::vector<int> ordered_by(const std::vector<SectionBuffer>& buffers, const std::vector<BufferKey>& keys);

/// Bytes that live in each section.
std::vector<int64_t> section_loads(const std::vector<SectionBuffer>& buffers);

}  // namespace graphpipe
