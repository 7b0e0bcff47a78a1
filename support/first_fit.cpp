#include "support/first_fit.h"

#include <algorithm>
#include <utility>

namespace graphpipe {
namespace {

/// Tries per order to place earlier what stuck out; fewer where buffers are many, since each is quadratic.
int improvements_of(size_t buffers) { return buffers <= 1000 ? 32 : buffers <= 5000 ? 4 : 0; }

/// The buffers that end at the height come first, the others as they were.
void raise_culprits(const std::vector<SectionBuffer>& buffers, const FirstFit& fit, std::vector<int>& order) {
  // Not the one of std::ranges: its result is a subrange, which Clang 14 does not compile.
  std::stable_partition(order.begin(), order.end(), [&](int index) {
    const auto i = static_cast<size_t>(index);
    return fit.offsets[i] + buffers[i].size == fit.height;
  });
}

struct Placed {
  int64_t offset;
  SectionBuffer buffer;
};

}  // namespace

FirstFit first_fit(const std::vector<SectionBuffer>& buffers, const std::vector<int>& order) {
  FirstFit fit;
  fit.offsets.assign(buffers.size(), 0);
  std::vector<Placed> placed;  // by offset: what is lowest is met first, and the walk ends at the first gap
  placed.reserve(order.size());
  for (const int index : order) {
    const SectionBuffer& buffer = buffers[static_cast<size_t>(index)];
    int64_t offset = 0;
    for (const Placed& below : placed) {
      if (offset + buffer.size <= below.offset) break;
      const int64_t end = below.offset + below.buffer.size;
      if (end > offset && live_together(buffer, below.buffer)) offset = aligned_up(end, buffer.alignment);
    }
    fit.offsets[static_cast<size_t>(index)] = offset;
    fit.height = std::max(fit.height, offset + buffer.size);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &Placed::offset), {offset, buffer});
  }
  return fit;
}

FirstFit best_first_fit(const std::vector<SectionBuffer>& buffers, int64_t goal) {
  using enum BufferKey;
  const std::vector<std::vector<BufferKey>> orders = {
      {kArea, kWidth}, {kWidth, kArea}, {kTotal, kWidth, kArea}, {kTotal, kArea, kWidth}};
  FirstFit best;
  for (const std::vector<BufferKey>& keys : orders) {
    std::vector<int> order = ordered_by(buffers, keys);
    for (int rounds = improvements_of(buffers.size()); rounds >= 0; --rounds) {
      FirstFit fit = first_fit(buffers, order);
      raise_culprits(buffers, fit, order);
      if (best.offsets.empty() || fit.height < best.height) best = std::move(fit);
      if (best.height <= goal) return best;
    }
  }
  return best;
}

}  // namespace graphpipe
