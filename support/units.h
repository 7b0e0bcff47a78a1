#pragma once
// Quantities with their unit in the type: a swapped argument does not compile.
// Times in schedules are integer Ticks (nanoseconds for real prices); planners compute in double seconds.

#include <compare>
#include <cstdint>
#include <limits>
#include <ostream>

#include "support/printed.h"

namespace graphpipe {

/// No limit, or no plan: a time or a size that nothing reaches.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// In place of a time of zero that something is divided by.
inline constexpr double kMinSeconds = 1e-300;

/// A number with a unit. Same units add and compare; scaling takes plain numbers.
template <typename Tag, typename Rep>
struct Quantity {
  Rep count{};
  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep value) : count(value) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) {
    count += other.count;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.count + b.count); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.count - b.count); }
  friend constexpr Quantity operator*(Quantity a, Rep factor) { return Quantity(a.count * factor); }
  friend constexpr Quantity operator*(Rep factor, Quantity a) { return Quantity(a.count * factor); }
  friend constexpr Quantity operator/(Quantity a, Rep divisor) { return Quantity(a.count / divisor); }
  operator Printed() const { return count; }
  friend std::ostream& operator<<(std::ostream& out, Quantity q) { return out << q.count; }
};

using Bytes = Quantity<struct BytesTag, int64_t>;
using Flops = Quantity<struct FlopsTag, double>;
using Samples = Quantity<struct SamplesTag, int64_t>;
using Ticks = Quantity<struct TicksTag, int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) { return Bytes(static_cast<int64_t>(n) << 10); }
constexpr Bytes operator""_MiB(unsigned long long n) { return Bytes(static_cast<int64_t>(n) << 20); }
constexpr Bytes operator""_GiB(unsigned long long n) { return Bytes(static_cast<int64_t>(n) << 30); }
}  // namespace literals

constexpr Seconds operator/(Bytes size, BytesPerSecond rate) {
  return Seconds(static_cast<double>(size.count) / rate.count);
}
constexpr Seconds operator/(Flops work, FlopsPerSecond rate) { return Seconds(work.count / rate.count); }

}  // namespace graphpipe
