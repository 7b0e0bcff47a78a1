#include "support/offsets.h"

#include <algorithm>
#include <numeric>

#include "support/check.h"
#include "support/first_fit.h"
#include "support/offset_search.h"
#include "support/sort_unique.h"

namespace graphpipe {
namespace {

/// The largest unit in which canonical offsets are whole numbers. Alignments that divide it hold by themselves.
int64_t offset_unit(const std::vector<TimedBuffer>& buffers) {
  int64_t unit = 0;
  for (const TimedBuffer& buffer : buffers) unit = std::gcd(unit, buffer.size.count);
  if (unit == 0) return 1;
  for (int64_t before = 0; before != unit;) {
    before = unit;
    for (const TimedBuffer& buffer : buffers)
      if (unit % buffer.alignment.count != 0) unit = std::gcd(unit, buffer.alignment.count);
  }
  return unit;
}

/// The buffers that take room, in sections and units.
struct OffsetProblem {
  int64_t unit = 1;
  std::vector<SectionBuffer> buffers;
  std::vector<size_t> index;  // of the caller's buffers
};

OffsetProblem problem_of(const std::vector<TimedBuffer>& buffers) {
  OffsetProblem problem;
  problem.unit = offset_unit(buffers);
  std::vector<int64_t> starts;
  for (const TimedBuffer& buffer : buffers) {
    GP_CHECK(buffer.first < buffer.end && buffer.size.count >= 0 && buffer.alignment.count >= 1);
    if (buffer.size.count > 0) starts.push_back(buffer.first);
  }
  sort_unique(starts);
  const auto section_at = [&](int64_t time) {
    return static_cast<int>(std::ranges::lower_bound(starts, time) - starts.begin());
  };
  for (size_t i = 0; i < buffers.size(); ++i) {
    const TimedBuffer& buffer = buffers[i];
    if (buffer.size.count == 0) continue;
    problem.index.push_back(i);
    problem.buffers.push_back({section_at(buffer.first), section_at(buffer.end), buffer.size.count / problem.unit,
                               std::max<int64_t>(1, buffer.alignment.count / problem.unit)});
  }
  return problem;
}

/// No placement is lower. Where all offsets are multiples of a number, of the buffers that live at once all but the
/// highest take their size rounded up to it.
int64_t bytes_needed(const std::vector<SectionBuffer>& buffers) {
  int64_t grain = 0;
  for (const SectionBuffer& buffer : buffers) grain = std::gcd(grain, buffer.alignment);
  std::vector<SectionBuffer> padded = buffers;
  for (SectionBuffer& buffer : padded) buffer.size = aligned_up(buffer.size, grain);
  std::vector<int64_t> needed = section_loads(padded);
  if (grain == 1) return std::ranges::max(needed);
  std::vector<int64_t> spared(needed.size(), 0);
  for (size_t i = 0; i < buffers.size(); ++i)
    for (int s = buffers[i].first; s < buffers[i].end; ++s) {
      int64_t& largest = spared[static_cast<size_t>(s)];
      largest = std::max(largest, padded[i].size - buffers[i].size);
    }
  for (size_t s = 0; s < needed.size(); ++s) needed[s] -= spared[s];
  return std::ranges::max(needed);
}

int64_t height_of(const std::vector<SectionBuffer>& buffers, const std::vector<int64_t>& offsets) {
  int64_t height = 0;
  for (size_t i = 0; i < buffers.size(); ++i) height = std::max(height, offsets[i] + buffers[i].size);
  return height;
}

/// Heights known to suffice, and known to be needed.
struct Heights {
  FirstFit best;
  int64_t needed = 0;
};

/// Whether the height can be reached, with at most so many steps.
SearchEnd try_height(const std::vector<SectionBuffer>& buffers, int64_t height, int64_t& steps, Heights& heights) {
  OffsetSearchResult found = search_offsets(buffers, height, steps);
  if (found.end == SearchEnd::kFound) {
    const int64_t reached = height_of(buffers, found.offsets);
    heights.best = {std::move(found.offsets), reached};
  }
  if (found.end == SearchEnd::kNone) heights.needed = height + 1;
  return found.end;
}

/// Bisects between what is needed and what suffices. The bound itself comes first: it is met more often than not.
void minimise(const std::vector<SectionBuffer>& buffers, int64_t steps, Heights& heights) {
  int64_t hopeless = heights.needed - 1;  // not reached with the steps that were given, though perhaps possible
  for (int64_t target = heights.needed; heights.best.height > target;) {
    int64_t share = steps / 2;
    steps -= share;
    const SearchEnd end = try_height(buffers, target, share, heights);
    steps += std::max<int64_t>(share, 0);
    if (end != SearchEnd::kFound) hopeless = target;
    target = hopeless + std::max<int64_t>(1, (heights.best.height - hopeless) / 2);
  }
}

}  // namespace

OffsetPlan plan_offsets(const std::vector<TimedBuffer>& buffers, const OffsetOptions& options) {
  const OffsetProblem problem = problem_of(buffers);
  OffsetPlan plan;
  plan.offsets.assign(buffers.size(), Bytes(0));
  if (problem.buffers.empty()) return plan;
  Heights heights;
  heights.needed = bytes_needed(problem.buffers);
  const int64_t goal =
      options.capacity ? std::max(options.capacity->count / problem.unit, heights.needed) : heights.needed;
  heights.best = best_first_fit(problem.buffers, goal);
  if (problem.buffers.size() <= options.max_searched && heights.best.height > goal) {
    int64_t steps = options.max_steps;
    if (!options.capacity) minimise(problem.buffers, steps, heights);
    // A capacity below the need is out of reach as it is.
    else if (options.capacity->count / problem.unit >= heights.needed)
      try_height(problem.buffers, goal, steps, heights);
  }
  for (size_t i = 0; i < problem.index.size(); ++i)
    plan.offsets[problem.index[i]] = Bytes(heights.best.offsets[i] * problem.unit);
  plan.height = Bytes(heights.best.height * problem.unit);
  plan.lower_bound = Bytes(heights.needed * problem.unit);
  return plan;
}

}  // namespace graphpipe
