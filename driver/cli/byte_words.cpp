#include "driver/cli/byte_words.h"

#include <algorithm>
#include <array>

#include "support/text.h"

namespace graphpipe::driver {

std::optional<double> bytes_of_word(std::string_view word) {
  constexpr std::array kPrefixes{'K', 'M', 'G', 'T'};
  double unit = 1;
  if (word.ends_with('B')) {
    word.remove_suffix(1);
    const double thousand = word.ends_with('i') ? 1024 : 1000;
    if (thousand == 1024) word.remove_suffix(1);
    if (word.empty()) return std::nullopt;
    const auto* prefix = std::ranges::find(kPrefixes, word.back());
    if (prefix == kPrefixes.end()) return std::nullopt;
    for (const auto* each = kPrefixes.begin(); each <= prefix; ++each) unit *= thousand;
    word.remove_suffix(1);
    if (word.ends_with(' ')) word.remove_suffix(1);
  }
  double number = 0;
  if (!read_number(word, number)) return std::nullopt;
  return number * unit;
}

}  // namespace graphpipe::driver
