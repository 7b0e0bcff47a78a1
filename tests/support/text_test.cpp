#include "support/text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <type_traits>

#include "support/splitmix64.h"
#include "support/units.h"

namespace graphpipe {
namespace {

// Every byte there is, then what the encoders treat specially.
std::string all_bytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes + "\xe2\x80\xa8 */ \\\n?\?/ </script> \" %s";
}

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

TEST_CASE("text from a file turns into no other text by itself") {
  CHECK_FALSE(std::is_convertible_v<ModelText, std::string>);
  CHECK_FALSE(std::is_convertible_v<std::string, ModelText>);
  CHECK_FALSE(std::is_constructible_v<EncodedText<CppComment>, std::string>);
  CHECK_FALSE(std::is_convertible_v<EncodedText<Terminal>, EncodedText<CppComment>>);
}

TEST_CASE("encoders let no byte through that means something in their context") {
  const ModelText hostile(all_bytes());
  CHECK(is_ascii(Terminal::encode(hostile).str()));
  CHECK(is_ascii(CppComment::encode(hostile).str()));
  CHECK(CppComment::encode(hostile).str().find_first_of("\\\n?*") == std::string::npos);
  CHECK(is_ascii(CppLiteral::encode(hostile).str()));
  CHECK(HtmlText::encode(hostile).str().find_first_of("<>\"'") == std::string::npos);
  const std::string json = JsonString::encode(hostile).str();
  CHECK(json.find_first_of("<>&\n\x7f") == std::string::npos);
  for (size_t i = 0; i < json.size(); i += utf8_length(std::string_view(json).substr(i)))
    REQUIRE(utf8_length(std::string_view(json).substr(i)) > 0);
}

TEST_CASE("encoders by example") {
  CHECK(Terminal::encode_text("a\x1b[2J\\").str() == "a\\x1b[2J\\x5c");
  CHECK(CppComment::encode(ModelText("flow[0]")).str() == "flow_0_");
  CHECK(CppComment::encode(ModelText("/layer.0/Conv*/\\\nint x;")).str() == "/layer.0/Conv_/__int x_");
  CHECK(CppLiteral::encode(ModelText("a\"\n1?%")).str() == "\"a\\042\\0121\\077\\045\"");
  CHECK(JsonString::encode_text("a\"\\\n\xc3\xa9\xff<").str() == "\"a\\\"\\\\\\u000a\xc3\xa9\\ufffd\\u003c\"");
  CHECK(HtmlText::encode(ModelText("<b a='1'>&")).str() == "&lt;b a=&#39;1&#39;&gt;&amp;");
  CHECK(quoted(ModelText("n\t")) == "'n\\x09'");
  CHECK(HtmlText::encode(ModelText("\xc3\xa9\xe2\x80\xae")).str() == "\xc3\xa9\\xe2\\x80\\xae");
  CHECK(quoted(ModelText(std::string(1000, 'x'))).size() == 202);
  CHECK(text("a", 1, std::string("b")) == "a1b");
  CHECK(text(-1, ' ', uint64_t{1} << 63, true, std::string_view("c"), Bytes(7)) == "-1 92233720368547758081c7");
}

TEST_CASE("a number prints as a stream prints it") {
  const auto streamed = [](double number) {
    std::ostringstream out;
    out << number;
    return out.str();
  };
  for (const double number : {0.0, -0.0, 1e5, 999999.5, 1234567.0, 1e-4, 1e-5, 1.0 / 3, 5e-324, kInfinity, -kInfinity})
    CHECK(text(number) == streamed(number));
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    const auto any = std::bit_cast<double>(splitmix64(seed));
    CHECK(text(any) == streamed(any));
    const double ordinary = static_cast<double>(splitmix64(seed) >> 40) / 1000;
    CHECK(text(ordinary) == streamed(ordinary));
  }
}

TEST_CASE("a number is all of a word or none, and splitting keeps empty parts") {
  int64_t whole = 7;
  CHECK(read_number("-12", whole));
  CHECK(whole == -12);
  for (const char* word : {"", "1x", " 1", "+1", "9223372036854775808", "1.5"}) CHECK_FALSE(read_number(word, whole));
  double real = 0;
  CHECK(read_number("1e-3", real));
  CHECK(real == 1e-3);
  using Parts = std::vector<std::string_view>;
  CHECK(split("a,,b,", ",") == Parts{"a", "", "b", ""});
  CHECK(split("", ",") == Parts{""});
  CHECK(split("a -- b", " -- ") == Parts{"a", "b"});
  CHECK(trimmed(" \ta b\r") == "a b");
  CHECK(trimmed(" ").empty());
}

TEST_CASE("only well-formed UTF-8 counts") {
  CHECK(utf8_length("a") == 1);
  CHECK(utf8_length("\xc3\xa9") == 2);
  CHECK(utf8_length("\xe2\x82\xac") == 3);
  CHECK(utf8_length("\xf0\x9f\x98\x80") == 4);
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\x80", "\xe2\x82", "\xed\xa0\x80",
                          "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    CAPTURE(Terminal::encode_text(bad).str());
    CHECK(utf8_length(bad) == 0);
  }
}

TEST_CASE("text of any language is shown as it is, and what a reader does not see is escaped") {
  // German, Russian, Chinese, Arabic, a combining accent, a smiley.
  for (const char* shown : {"Gr\xc3\xbc\xc3\x9f"
                            "e",
                            "\xd0\xbc\xd0\xbe\xd0\xb4\xd0\xb5\xd0\xbb\xd1\x8c", "\xe6\xa8\xa1\xe5\x9e\x8b",
                            "\xd9\x86\xd9\x85\xd9\x88\xd8\xb0\xd8\xac", "e\xcc\x81", "\xf0\x9f\x98\x80"}) {
    CAPTURE(shown);
    CHECK(Terminal::encode_text(shown).str() == shown);
    CHECK(quoted(ModelText(shown)) == text("'", shown, "'"));
  }
  // A control, a soft hyphen, marks of direction, a joiner, a line's end, overrides, isolates, a byte order mark, a
  // tag, selectors, no characters.
  for (const char* hidden : {"\xc2\x9b", "\xc2\xad", "\xd8\x9c", "\xe2\x80\x8b", "\xe2\x80\x8d", "\xe2\x80\x8f",
                             "\xe2\x80\xa8", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9", "\xef\xbb\xbf",
                             "\xf3\xa0\x81\x81", "\xef\xb8\x8f", "\xef\xbf\xbe", "\xf4\x8f\xbf\xbf"}) {
    const std::string encoded = Terminal::encode_text(hidden).str();
    CAPTURE(encoded);
    CHECK(is_ascii(encoded));
    CHECK(encoded.size() == 4 * std::string_view(hidden).size());
  }
  CHECK(Terminal::encode_text("\xc3\xa4\xc3").str() == "\xc3\xa4\\xc3");
}

TEST_CASE("a long name is cut between characters") {
  std::string name;
  while (name.size() < 1000) name += "\xe2\x82\xac";
  const std::string shown = quoted(ModelText(name));
  CHECK(shown.size() <= 202);
  CHECK(shown.ends_with("\xe2\x82\xac...'"));
  for (size_t i = 0; i < shown.size(); i += utf8_length(std::string_view(shown).substr(i)))
    REQUIRE(utf8_length(std::string_view(shown).substr(i)) > 0);
}

}  // namespace
}  // namespace graphpipe
