#pragma once
// Reads the subset of JSON that a safetensors header is made of: objects, lists, strings, integers from 0.

#include <cstdint>
#include <string>
#include <string_view>

namespace graphpipe::wire {

/// Takes one token after the other; spaces before a token do not matter. Each returns whether it was there; where it
/// was not the scanner stands at no particular place.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view json) : rest_(json) {}

  bool token(char c);
  /// From 0 to 2^63 - 1, without a sign, a fraction or an exponent.
  bool number(int64_t& value);
  /// UTF-8 without control characters; escapes are undone.
  bool string(std::string& out);
  bool at_end();

 private:
  void skip_spaces();
  bool hex(uint32_t& code);
  bool escape(std::string& out);

  std::string_view rest_;
};

}  // namespace graphpipe::wire
