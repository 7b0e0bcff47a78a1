#include "support/offset_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>
#include <utility>

#include "support/check.h"
#include "support/splitmix64.h"

namespace graphpipe {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;
constexpr size_t kMaxFailedStates = size_t{1} << 20;
constexpr int64_t kFirstRoundFailures = 400;

/// Which section is branched on; ties by fewest choices per weight.
enum class SectionChoice : uint8_t { kFewestChoices, kLowestFloor, kMinSlack };

struct Strategy {
  SectionChoice choice = SectionChoice::kFewestChoices;
  /// Of the buffers.
  std::vector<int> order;
  /// Of the sections, by their failures so far.
  std::vector<double> weights;
};

/// The smallest of some values and the second smallest, with the owner of the smallest: the smallest without any one of
/// them.
struct SmallestTwo {
  int64_t smallest = kNever, second = kNever;
  int owner = -1;
  void add(int64_t value, int index) {
    if (value < smallest) {
      second = std::exchange(smallest, value);
      owner = index;
    } else {
      second = std::min(second, value);
    }
  }
  int64_t without(int index) const { return owner == index ? second : smallest; }
};

/// What the open buffers of a section say of it.
struct Section {
  SmallestTwo starts, ends;  // of buffers at their lowest
  int64_t load = 0;
  int64_t bound = 0;  // of the height
  int choices = 0;    // buffers that can start at the floor
};

class OffsetSearch {
 public:
  OffsetSearch(const std::vector<SectionBuffer>& buffers, int64_t capacity, int64_t& steps)
      : buffers_(buffers), capacity_(capacity), steps_(steps), offsets_(buffers.size()), states_(buffers.size()) {
    sections_.resize(section_loads(buffers).size());
    rank_.resize(buffers.size());
  }

  /// Ends after so many failures. Failed states are remembered for all strategies, since they depend on none.
  SearchEnd run(Strategy& strategy, int64_t failures) {
    strategy_ = &strategy;
    failures_ = failures;
    strategy.weights.resize(sections_.size(), 1);
    for (size_t i = 0; i < strategy.order.size(); ++i)
      rank_[static_cast<size_t>(strategy.order[i])] = static_cast<int>(i);
    std::ranges::fill(states_, State());
    return solve(strategy.order);
  }

  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  using Open = std::vector<int>;

  struct State {
    int64_t lowest = 0, support = 0;
  };

  const SectionBuffer& buffer(int index) const { return buffers_[static_cast<size_t>(index)]; }
  State& state(int index) { return states_[static_cast<size_t>(index)]; }
  const State& state(int index) const { return states_[static_cast<size_t>(index)]; }
  Section& section(int index) { return sections_[static_cast<size_t>(index)]; }
  double& weight(int section) { return strategy_->weights[static_cast<size_t>(section)]; }
  bool can_start_at(int index, int64_t floor) const {
    return state(index).lowest == floor && state(index).support == floor;
  }

  template <typename Visit>
  void for_sections(const Open& open, Visit visit) {
    for (const int index : open) {
      const SectionBuffer& it = buffer(index);
      steps_ -= it.end - it.first;
      for (int s = it.first; s < it.end; ++s) visit(section(s), index);
    }
  }

  /// Sums up the sections. False where a buffer does not fit on its own.
  bool read_sections(const Open& open) {
    for_sections(open, [](Section& s, int) { s = Section(); });
    for (const int index : open) {
      const SectionBuffer& it = buffer(index);
      if (state(index).lowest + it.size <= capacity_) continue;
      for (int s = it.first; s < it.end; ++s) weight(s) += 1.0 / (it.end - it.first);
      return false;
    }
    for_sections(open, [&](Section& s, int index) {
      s.starts.add(state(index).lowest, index);
      s.ends.add(state(index).lowest + buffer(index).size, index);
    });
    return true;
  }

  /// A buffer that was raised lies on another open one. False where it could lie on its support beneath all others.
  bool raise_to_others(const Open& open, bool& changed) {
    for (const int index : open) {
      State& its = state(index);
      if (its.lowest == its.support) continue;
      const SectionBuffer& it = buffer(index);
      int64_t start = kNever, end = kNever;
      for (int s = it.first; s < it.end; ++s) {
        start = std::min(start, section(s).starts.without(index));
        end = std::min(end, section(s).ends.without(index));
      }
      if (start >= its.support + it.size) return false;
      end = aligned_up(end, it.alignment);
      if (end <= its.lowest) continue;
      its.lowest = end;
      changed = true;
    }
    return true;
  }

  /// Sorts what is open by its lowest offset; false where a section exceeds the capacity.
  bool check_bounds(Open& open) {
    std::ranges::sort(open, {},
                      [&](int index) { return std::pair(state(index).lowest, rank_[static_cast<size_t>(index)]); });
    for (size_t i = open.size(); i-- > 0;) {
      const SectionBuffer& it = buffer(open[i]);
      bool fits = true;
      for (int s = it.first; s < it.end; ++s) {
        Section& here = section(s);
        here.load += it.size;
        here.bound = std::max(here.bound, state(open[i]).lowest + here.load);
        if (here.bound <= capacity_) continue;
        weight(s) += 1;
        fits = false;
      }
      if (!fits) return false;
    }
    return true;
  }

  bool infer(Open& open) {
    for (bool changed = true; changed;) {
      changed = false;
      if (!read_sections(open) || !raise_to_others(open, changed)) return false;
    }
    return check_bounds(open);
  }

  /// Groups of buffers with no common section, each in the order of `open`; first the one of the heaviest section.
  std::vector<Open> parts_of(const Open& open) {
    Open by_time = open;
    std::ranges::sort(by_time, {}, [&](int index) { return buffer(index).first; });
    std::vector<int> starts;  // of the parts
    int end = -1;
    for (const int index : by_time) {
      if (buffer(index).first >= end) starts.push_back(buffer(index).first);
      end = std::max(end, buffer(index).end);
    }
    std::vector<Open> parts(starts.size());
    std::vector<double> heaviest(starts.size(), 0);
    for (const int index : open) {
      const SectionBuffer& it = buffer(index);
      const auto part = static_cast<size_t>(std::ranges::upper_bound(starts, it.first) - starts.begin()) - 1;
      parts[part].push_back(index);
      for (int s = it.first; s < it.end; ++s) heaviest[part] = std::max(heaviest[part], weight(s));
    }
    std::vector<size_t> order(parts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t part) { return heaviest[part]; });
    std::vector<Open> sorted;
    for (const size_t part : order) sorted.push_back(std::move(parts[part]));
    return sorted;
  }

  SearchEnd solve(Open open) {
    if (!infer(open)) {
      --failures_;
      return SearchEnd::kNone;
    }
    for (const Open& part : parts_of(open))
      if (const SearchEnd end = branch(part); end != SearchEnd::kFound) return end;
    return SearchEnd::kFound;
  }

  /// All that the rest of the search depends on.
  uint64_t hash_of(const Open& open) const {
    uint64_t hash = 0;
    for (const int index : open) {
      const State& its = state(index);
      hash +=
          splitmix64(splitmix64(splitmix64(static_cast<uint64_t>(its.lowest)) + static_cast<uint64_t>(its.support)) +
                     static_cast<uint64_t>(index));
    }
    return hash;
  }

  double rating(int s) {
    const Section& here = section(s);
    const bool can_stay_empty = here.starts.smallest + here.load < capacity_;
    const double choices = (here.choices + (can_stay_empty ? 1 : 0)) / weight(s);
    // Choices per weight lie below a thousand where it matters.
    if (strategy_->choice == SectionChoice::kLowestFloor)
      return static_cast<double>(here.starts.smallest) * 1000 + choices;
    if (strategy_->choice == SectionChoice::kMinSlack)
      return static_cast<double>(capacity_ - here.bound) * 1000 + choices;
    return choices;
  }

  /// The section of a valley that is rated lowest.
  int choose_section(const Open& open) {
    for_sections(open, [&](Section& s, int index) { s.choices += can_start_at(index, s.starts.smallest); });
    int first = std::numeric_limits<int>::max(), end = 0;
    for (const int index : open) {
      first = std::min(first, buffer(index).first);
      end = std::max(end, buffer(index).end);
    }
    int best = -1;
    double lowest_rating = std::numeric_limits<double>::infinity();
    for (int begin = first, stop = first; begin < end; begin = stop) {
      const int64_t floor = section(begin).starts.smallest;
      while (stop < end && section(stop).starts.smallest == floor) ++stop;
      const bool higher_before = begin == first || section(begin - 1).starts.smallest > floor;
      const bool higher_after = stop == end || section(stop).starts.smallest > floor;
      if (!higher_before || !higher_after) continue;
      for (int s = begin; s < stop; ++s) {
        const double its_rating = rating(s);
        if (its_rating >= lowest_rating) continue;
        lowest_rating = its_rating;
        best = s;
      }
    }
    return best;
  }

  /// Buffers that can start at the floor of the section, by rank; of equal ones, one.
  Open choices_at(const Open& open, int s, int64_t floor) const {
    Open choices;
    for (const int index : open) {
      const SectionBuffer& it = buffer(index);
      if (!can_start_at(index, floor) || it.first > s || it.end <= s) continue;
      const bool again = std::ranges::any_of(choices, [&](int other) {
        const SectionBuffer& before = buffer(other);
        return before.first == it.first && before.end == it.end && before.size == it.size &&
               before.alignment == it.alignment;
      });
      if (!again) choices.push_back(index);  // `open` is sorted by rank among equally low ones
    }
    return choices;
  }

  /// The rest after a placement.
  SearchEnd place(const Open& open, int placed, int64_t offset) {
    const SectionBuffer& it = buffer(placed);
    offsets_[static_cast<size_t>(placed)] = offset;
    Open rest;
    rest.reserve(open.size());
    for (const int index : open) {
      if (index == placed) continue;
      rest.push_back(index);
      if (!live_together(buffer(index), it)) continue;
      State& its = state(index);
      its.support = std::max(its.support, aligned_up(offset + it.size, buffer(index).alignment));
      its.lowest = std::max(its.lowest, its.support);
    }
    return solve(std::move(rest));
  }

  /// The rest when nothing starts at the floor of the section. Of equal buffers all are raised.
  SearchEnd leave_empty(const Open& open, int s, int64_t floor) {
    for (const int index : open)
      if (can_start_at(index, floor) && buffer(index).first <= s && s < buffer(index).end)
        state(index).lowest = aligned_up(floor + 1, buffer(index).alignment);
    return solve(open);
  }

  /// Of one part whose sections are read.
  SearchEnd branch(const Open& open) {
    if (open.size() == 1) {
      offsets_[static_cast<size_t>(open[0])] = state(open[0]).lowest;
      return SearchEnd::kFound;
    }
    if (failures_ < 0 || steps_ < 0) return SearchEnd::kOutOfSteps;
    const uint64_t hash = hash_of(open);
    if (failed_.contains(hash)) return SearchEnd::kNone;
    const int s = choose_section(open);
    const int64_t floor = section(s).starts.smallest;
    const bool can_stay_empty = floor + section(s).load < capacity_;
    std::vector<State> before;
    before.reserve(open.size());
    for (const int index : open) before.push_back(state(index));
    const auto restore = [&] {
      for (size_t i = 0; i < open.size(); ++i) state(open[i]) = before[i];
    };
    const Open choices = choices_at(open, s, floor);
    GP_CHECK(!choices.empty());  // infer raises above the floor of a valley what cannot start there
    for (const int choice : choices) {
      const SearchEnd end = place(open, choice, floor);
      restore();
      if (end != SearchEnd::kNone) return end;
    }
    if (can_stay_empty) {
      const SearchEnd end = leave_empty(open, s, floor);
      restore();
      if (end != SearchEnd::kNone) return end;
    }
    --failures_;
    if (failed_.size() < kMaxFailedStates) failed_.insert(hash);
    return SearchEnd::kNone;
  }

  const std::vector<SectionBuffer>& buffers_;
  const int64_t capacity_;
  int64_t& steps_;
  int64_t failures_ = 0;  // that are left
  Strategy* strategy_ = nullptr;
  std::vector<int> rank_;
  std::vector<int64_t> offsets_;
  std::vector<State> states_;
  std::vector<Section> sections_;
  std::unordered_set<uint64_t> failed_;
};

}  // namespace

OffsetSearchResult search_offsets(const std::vector<SectionBuffer>& buffers, int64_t capacity, int64_t& steps) {
  using enum BufferKey;
  using enum SectionChoice;
  if (buffers.empty()) return {SearchEnd::kFound, {}};
  const std::array<std::vector<BufferKey>, 3> keys = {
      {{kTotal, kWidth, kArea}, {kTotal, kArea, kWidth}, {kArea, kTotal, kWidth}}};
  std::vector<Strategy> strategies;
  for (const std::vector<BufferKey>& order : keys)
    for (const SectionChoice choice : {kFewestChoices, kLowestFloor, kMinSlack})
      strategies.push_back({choice, ordered_by(buffers, order), {}});
  OffsetSearch search(buffers, capacity, steps);
  for (int64_t failures = kFirstRoundFailures; steps > 0; failures *= 2)
    for (Strategy& strategy : strategies) {
      const SearchEnd end = search.run(strategy, failures);
      if (end == SearchEnd::kNone) return {end, {}};
      if (end == SearchEnd::kFound) return {end, search.offsets()};
      if (steps <= 0) break;
    }
  return {};
}

}  // namespace graphpipe
