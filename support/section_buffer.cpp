#include "support/section_buffer.h"

#include <algorithm>
#include <numeric>

namespace graphpipe {

std::vector<int64_t> section_loads(const std::vector<SectionBuffer>& buffers) {
  int sections = 0;
  for (const SectionBuffer& buffer : buffers) sections = std::max(sections, buffer.end);
  // Changes from section to section, then their sums: long lifetimes cost no more than short ones.
  std::vector<int64_t> loads(static_cast<size_t>(sections) + 1, 0);
  for (const SectionBuffer& buffer : buffers) {
    loads[static_cast<size_t>(buffer.first)] += buffer.size;
    loads[static_cast<size_t>(buffer.end)] -= buffer.size;
  }
  std::partial_sum(loads.begin(), loads.end(), loads.begin());
  loads.pop_back();
  return loads;
}

std::vector<int> ordered_by(const std::vector<SectionBuffer>& buffers, const std::vector<BufferKey>& keys) {
  const std::vector<int64_t> loads = section_loads(buffers);
  const auto value = [&](const SectionBuffer& buffer, BufferKey key) -> int64_t {
    const int64_t width = buffer.end - buffer.first;
    if (key == BufferKey::kWidth) return width;
    if (key == BufferKey::kArea) return width * buffer.size;
    return *std::max_element(loads.begin() + buffer.first, loads.begin() + buffer.end);
  };
  std::vector<std::pair<std::vector<int64_t>, int>> keyed;
  for (size_t i = 0; i < buffers.size(); ++i) {
    std::vector<int64_t> values;
    for (const BufferKey key : keys) values.push_back(-value(buffers[i], key));
    keyed.emplace_back(std::move(values), static_cast<int>(i));
  }
  std::ranges::sort(keyed);
  std::vector<int> order;
  for (const auto& [values, index] : keyed) order.push_back(index);
  return order;
}

}  // namespace graphpipe
