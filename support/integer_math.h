#pragma once
// Division of whole numbers that rounds up.

#include <concepts>
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

}  // namespace graphpipe
