#pragma once
// Division of whole numbers that rounds up, and sums of numbers that a stranger wrote.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

namespace graphpipe {

/// The least number that is not below a / b. Needs: a >= 0, b > 0, and a + b within the type.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

/// The least multiple of `step` that is not below `value`. Needs: as above.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> round_up(A value, B step) {
  return ceil_div(value, step) * step;
}

/// The sum, or nothing where it, or one of the sums on the way, leaves the type.
constexpr std::optional<int64_t> checked_sum(std::span<const int64_t> numbers) {
  int64_t sum = 0;
  for (const int64_t number : numbers)
    if (__builtin_add_overflow(sum, number, &sum)) return std::nullopt;
  return sum;
}

}  // namespace graphpipe
