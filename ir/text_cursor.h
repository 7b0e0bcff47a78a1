#pragma once
// Reads tokens from one line of text. The first failure is kept and everything after it yields empty values, so
// that a parser reads as a straight line and asks once, at the end, whether all went well.

#include <cstdint>
#include <string>
#include <string_view>

namespace graphpipe::ir {

class TextCursor {
 public:
  explicit TextCursor(std::string_view line) : line_(line) {}

  bool ok() const { return problem_.empty(); }
  /// What was wrong first, with its column, counted from 1.
  const std::string& problem() const { return problem_; }
  void fail(std::string_view what);

  bool at_end();
  /// Whether `token` comes next; takes it if so. Spaces before a token do not matter. A token that ends in a letter or
  /// digit must not run on into a longer word.
  bool accept(std::string_view token);
  void expect(std::string_view token);
  void expect_end();
  /// The same for one character that may run on, such as the 'n' of "n12".
  bool accept_character(char c);
  bool next_is(char c);

  /// Letters, digits, '_' and '.', starting with a letter or '_'.
  std::string word();
  /// Text in double quotes as quote() writes it.
  std::string quoted();
  /// A word or quoted text.
  std::string name();
  int64_t integer();
  /// A number up to `limit`, without a sign.
  uint64_t index(uint64_t limit);
  /// As number_text() writes it: always with a '.', an exponent, "inf" or "nan".
  double real();
  /// Whether the number that comes next is a real one rather than an integer.
  bool next_is_real();

 private:
  void skip_spaces();
  std::string_view rest() const { return line_.substr(position_); }
  /// The run of characters that can belong to a number.
  std::string_view number_token();

  std::string_view line_;
  size_t position_ = 0;
  std::string problem_;
};

/// The value of '0'-'9' or 'a'-'f', else -1.
int hex_digit(char c);
bool is_word(std::string_view text);
/// In double quotes, characters that are seen (support/text.h: shown_length) only: '"', '\' and all other bytes become
/// \xNN.
std::string quote(std::string_view raw);
/// The text itself where it is a word, else quoted.
std::string word_or_quote(std::string_view raw);
/// The shortest decimal that reads back as the same double, distinguishable from an integer.
std::string number_text(double number);

}  // namespace graphpipe::ir
