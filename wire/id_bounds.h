#pragma once
// The integers that an input may hold where it indexes a table or names classes.

#include <cstdint>

namespace graphpipe::wire {

/// [low, high), and `ignored` where there is one: a label that does not count.
struct IdBounds {
  int64_t low = 0;
  /// Nothing is known of the integers where it is not above `low`.
  int64_t high = 0;
  bool has_ignored = false;
  int64_t ignored = 0;
  constexpr bool bounded() const { return high > low; }
  constexpr bool hold(int64_t id) const { return (id >= low && id < high) || (has_ignored && id == ignored); }
  constexpr bool operator==(const IdBounds&) const = default;
};

}  // namespace graphpipe::wire
