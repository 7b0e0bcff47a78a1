#include "ir/text_cursor.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "support/text.h"

namespace graphpipe::ir {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_character(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

}  // namespace

void TextCursor::fail(std::string_view what) {
  if (ok()) problem_ = text("column ", position_ + 1, ": ", what);
}

void TextCursor::skip_spaces() {
  while (position_ < line_.size() && line_[position_] == ' ') ++position_;
}

bool TextCursor::at_end() {
  skip_spaces();
  return position_ == line_.size();
}

bool TextCursor::accept(std::string_view token) {
  if (!ok()) return false;
  skip_spaces();
  if (!rest().starts_with(token)) return false;
  const bool runs_on =
      is_word_character(token.back()) && rest().size() > token.size() && is_word_character(rest()[token.size()]);
  if (runs_on) return false;
  position_ += token.size();
  return true;
}

void TextCursor::expect(std::string_view token) {
  if (!accept(token)) fail(text("'", token, "' should stand here"));
}

bool TextCursor::next_is(char c) {
  skip_spaces();
  return ok() && rest().starts_with(c);
}

bool TextCursor::accept_character(char c) {
  if (!next_is(c)) return false;
  ++position_;
  return true;
}

void TextCursor::expect_end() {
  if (ok() && !at_end()) fail("the line should end here");
}

std::string TextCursor::word() {
  if (!ok()) return {};
  skip_spaces();
  if (rest().empty() || !is_letter(rest().front())) {
    fail("a word should stand here");
    return {};
  }
  const size_t start = position_;
  while (position_ < line_.size() && is_word_character(line_[position_])) ++position_;
  return std::string(line_.substr(start, position_ - start));
}

std::string TextCursor::quoted() {
  if (!ok()) return {};
  skip_spaces();
  if (!rest().starts_with('"')) {
    fail("quoted text should stand here");
    return {};
  }
  std::string raw;
  for (++position_; position_ < line_.size();) {
    const char c = line_[position_];
    if (c == '"') {
      ++position_;
      return raw;
    }
    const size_t length = shown_length(line_.substr(position_));
    if (length == 0) break;
    if (c != '\\') {
      raw += line_.substr(position_, length);
      position_ += length;
      continue;
    }
    const std::string_view escape = line_.substr(position_, 4);
    const int high = escape.size() == 4 && escape[1] == 'x' ? hex_digit(escape[2]) : -1;
    const int low = high >= 0 ? hex_digit(escape[3]) : -1;
    if (low < 0) break;
    raw += static_cast<char>(high * 16 + low);
    position_ += escape.size();
  }
  fail("quoted text holds characters that are seen and \\xNN and ends in '\"'");
  return {};
}

std::string TextCursor::name() {
  skip_spaces();
  return rest().starts_with('"') ? quoted() : word();
}

std::string_view TextCursor::number_token() {
  skip_spaces();
  size_t length = 0;
  const std::string_view left = rest();
  while (length < left.size() && (is_word_character(left[length]) || left[length] == '+' || left[length] == '-'))
    ++length;
  return left.substr(0, length);
}

int64_t TextCursor::integer() {
  if (!ok()) return 0;
  const std::string_view token = number_token();
  int64_t number = 0;
  if (!read_number(token, number)) {
    fail("an integer of 64 bits should stand here");
    return 0;
  }
  position_ += token.size();
  return number;
}

uint64_t TextCursor::index(uint64_t limit) {
  if (!ok()) return 0;
  skip_spaces();
  const std::string_view left = rest();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), number);
  if (error != std::errc() || number > limit) {
    fail(text("a number up to ", limit, " should stand here"));
    return 0;
  }
  position_ += static_cast<size_t>(end - left.data());
  return number;
}

double TextCursor::real() {
  if (!ok()) return 0;
  const std::string_view token = number_token();
  double number = 0;
  if (!read_number(token, number)) {
    fail("a number should stand here");
    return 0;
  }
  position_ += token.size();
  return number;
}

bool TextCursor::next_is_real() { return number_token().find_first_of(".einf") != std::string_view::npos; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool is_word(std::string_view text) {
  if (text.empty() || !is_letter(text.front())) return false;
  for (char c : text)
    if (!is_word_character(c)) return false;
  return true;
}

std::string quote(std::string_view raw) {
  std::string out = "\"";
  const EncodedText<Terminal> encoded = Terminal::encode_text(raw);
  for (char c : encoded.str()) {
    if (c == '"') out += "\\x22";
    else out += c;
  }
  return out + "\"";
}

std::string word_or_quote(std::string_view raw) { return is_word(raw) ? std::string(raw) : quote(raw); }

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  std::array<char, 40> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  std::string out(buffer.data(), end);
  if (out.find_first_of(".einf") == std::string::npos) out += ".0";
  return out;
}

}  // namespace graphpipe::ir
