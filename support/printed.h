#pragma once
// The printed form of one value, as text() joins it: numbers as std::ostream prints them by default, in no locale. One
// type for all values, so that no code is made anew for each list of types that some message has.

#include <array>
#include <concepts>
#include <cstdint>
#include <string_view>

namespace graphpipe {

class Printed {
 public:
  // Implicit, as a conversion to text is.
  Printed(std::string_view words) : words_(words) {}
  Printed(const char* words) : words_(words) {}
  Printed(char character) : digits_{character}, words_(digits_.data(), 1) {}
  Printed(int64_t number);
  Printed(uint64_t number);
  /// Six digits.
  Printed(double number);
  template <std::signed_integral Number>
  Printed(Number number) : Printed(static_cast<int64_t>(number)) {}
  template <std::unsigned_integral Number>
  Printed(Number number) : Printed(static_cast<uint64_t>(number)) {}
  // It may point into itself.
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;

  std::string_view words() const { return words_; }

 private:
  std::array<char, 32> digits_;
  std::string_view words_;
};

}  // namespace graphpipe
