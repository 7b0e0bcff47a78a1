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

}  // namespace

FirstFit first_fit(const std::vector<SectionBuffer>& buffers, const std::vector<int>& order) {
  FirstFit fit;
  fit.offsets.assign(buffers.size(), 0);
  std::vector<int> placed;
  std::vector<std::pair<int64_t, int64_t>> taken;  // offset and end of those that live together with the buffer
  for (const int index : order) {
    const SectionBuffer& buffer = buffers[static_cast<size_t>(index)];
    taken.clear();
    for (const int other : placed) {
      const SectionBuffer& below = buffers[static_cast<size_t>(other)];
      if (!live_together(buffer, below)) continue;
      const int64_t offset = fit.offsets[static_cast<size_t>(other)];
      taken.emplace_back(offset, offset + below.size);
    }
    std::ranges::sort(taken);
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + buffer.size <= begin) break;
      offset = std::max(offset, aligned_up(end, buffer.alignment));
    }
    fit.offsets[static_cast<size_t>(index)] = offset;
    fit.height = std::max(fit.height, offset + buffer.size);
    placed.push_back(index);
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
