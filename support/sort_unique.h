#pragma once
// Lists as sets.

#include <algorithm>
#include <vector>

namespace graphpipe {

/// Sorts the list and leaves one of equal elements.
template <typename T>
void sort_unique(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace graphpipe
