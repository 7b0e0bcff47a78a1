#pragma once
// Text that comes from outside, and text that is safe in one context.
//
// A name in a model file is hostile until encoded. It travels as ModelText, which converts to nothing.
// Each output context has a type of its own that only its encoder makes, so writing an unencoded name
// into a C++ comment, a terminal, HTML, JSON or dot does not compile.

#include <charconv>
#include <compare>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "support/printed.h"

namespace graphpipe {

/// One after the other.
std::string joined(std::initializer_list<Printed> parts);

/// Joins the printed forms of its arguments.
template <typename... Parts>
std::string text(const Parts&... parts) {
  return joined({Printed(parts)...});
}

/// Reads all of `word` as a number. False where it is none, does not fit, or has characters left over.
template <typename Number>
bool read_number(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

/// The parts between the marks, empty ones included: one more than there are marks.
std::vector<std::string_view> split(std::string_view words, std::string_view mark);

/// A name or message that came from a user's file. Compare and store it; to print it, encode it.
class ModelText {
 public:
  ModelText() = default;
  explicit ModelText(std::string raw) : raw_(std::move(raw)) {}
  /// The bytes as they stood in the file: for look-ups and for encoders, never for output.
  const std::string& raw() const { return raw_; }
  bool empty() const { return raw_.empty(); }
  auto operator<=>(const ModelText&) const = default;

 private:
  std::string raw_;
};

/// Text that is safe in the context `Tag` names; only the encoders below make it.
template <typename Tag>
class EncodedText {
 public:
  const std::string& str() const { return value_; }

 private:
  explicit EncodedText(std::string value) : value_(std::move(value)) {}
  std::string value_;
  friend Tag;
};

/// What shown_length() lets pass, but for backslashes; other bytes become \xNN. For terminals, logs and diagnostics.
struct Terminal {
  static EncodedText<Terminal> encode(const ModelText& name);
  static EncodedText<Terminal> encode_text(std::string_view raw);
};
/// Letters, digits and a few marks; all else becomes '_'. For a // comment in generated C++.
struct CppComment {
  static EncodedText<CppComment> encode(const ModelText& name);
};
/// A quoted JSON string, valid UTF-8, with '<' escaped so that it may stand inside HTML.
struct JsonString {
  static EncodedText<JsonString> encode(const ModelText& name);
  static EncodedText<JsonString> encode_text(std::string_view raw);
};
/// A quoted C++ string literal that holds the same bytes.
struct CppLiteral {
  static EncodedText<CppLiteral> encode(const ModelText& name);
};
/// Text between HTML/SVG tags or inside a quoted attribute; the same bytes as in Terminal become \xNN.
struct HtmlText {
  static EncodedText<HtmlText> encode(const ModelText& name);
};

/// Length of the valid UTF-8 sequence at the start of `rest`, or 0. Needs: `rest` is not empty.
size_t utf8_length(std::string_view rest);

/// Length of the character at the start of `rest` if a reader sees it as what it is; 0 of controls, bytes that are no
/// UTF-8, and characters that are invisible or turn the direction of others. Needs: `rest` is not empty.
size_t shown_length(std::string_view rest);

/// Without the blanks at its ends: spaces, tabs and carriage returns.
std::string_view trimmed(std::string_view raw);

/// The name as diagnostics show it: quoted, terminal-safe, cut at 200 bytes.
std::string quoted(const ModelText& name);

}  // namespace graphpipe
