#pragma once
// What the words after flags may be.

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/suggestion.h"

namespace graphpipe::driver {

const CLI::Range kOneOrMore(int64_t{1}, int64_t{1} << 30);
/// CLI11's own ranges let NaN pass and print bounds with six decimals.
extern const CLI::Validator kNotNegative;
/// Put the number of bytes in the word's place.
extern const CLI::Validator kBytes;
extern const CLI::Validator kLinkSpeed;
/// CLI11's own reader saturates a number that does not fit.
extern const CLI::Validator kWhole64;

/// One of an enumeration's names, the first to that of `last`.
template <typename Enum>
CLI::IsMember member_of(std::string_view (*name)(Enum), Enum last) {
  std::vector<std::string> names;
  for (size_t i = 0; i <= static_cast<size_t>(last); ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return CLI::IsMember(std::move(names));
}

template <typename Entries>
CLI::Validator one_of(const Entries& entries) {
  std::vector<std::string> known;
  std::string list;
  for (const auto& entry : entries) {
    known.emplace_back(entry.name);
    list += (list.empty() ? "" : "|") + known.back();
  }
  return CLI::Validator(
      [known, list](std::string& word) {
        if (std::ranges::find(known, word) != known.end()) return std::string();
        return "there is no '" + word + "'" + suggestion(word, known) + " (known: " + list + ")";
      },
      list);
}

}  // namespace graphpipe::driver
