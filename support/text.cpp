#include "support/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace graphpipe {
namespace {

/// Of a number that need not be whole, as streams print it.
constexpr int kDigits = 6;
constexpr char kHex[] = "0123456789abcdef";

bool is_printable(char c) { return c >= 0x20 && c < 0x7f; }

void append_hex_escape(std::string& out, const char* prefix, char c) {
  const auto byte = static_cast<unsigned char>(c);
  out += prefix;
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

/// Of a valid sequence of two bytes or more.
uint32_t code_point(std::string_view sequence) {
  uint32_t code = static_cast<unsigned char>(sequence[0]) & (0xff >> (sequence.size() + 1));
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return code;
}

/// Characters beyond ASCII that a reader does not see, or that change how what stands around them is shown: controls,
/// marks and overrides of direction, joiners, separators of lines, tags, and code points that are no characters.
bool is_hidden(uint32_t code) {
  constexpr std::pair<uint32_t, uint32_t> kHidden[] = {
      {0x80, 0x9f},     {0xad, 0xad},       {0x34f, 0x34f},     {0x61c, 0x61c},    {0x115f, 0x1160},
      {0x17b4, 0x17b5}, {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},  {0x2060, 0x206f},
      {0x3164, 0x3164}, {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},  {0xfff0, 0xfffb},
      {0xfdd0, 0xfdef}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
  return (code & 0xfffe) == 0xfffe ||
         std::ranges::any_of(kHidden, [=](const auto& range) { return range.first <= code && code <= range.second; });
}

}  // namespace

Printed::Printed(int64_t number)
    : words_(digits_.data(), std::to_chars(digits_.data(), digits_.data() + digits_.size(), number).ptr) {}
Printed::Printed(uint64_t number)
    : words_(digits_.data(), std::to_chars(digits_.data(), digits_.data() + digits_.size(), number).ptr) {}
Printed::Printed(double number)
    : words_(digits_.data(),
             std::to_chars(digits_.data(), digits_.data() + digits_.size(), number, std::chars_format::general, kDigits)
                 .ptr) {}

std::string joined(std::initializer_list<Printed> parts) {
  size_t size = 0;
  for (const Printed& part : parts) size += part.words().size();
  std::string all;
  all.reserve(size);
  for (const Printed& part : parts) all += part.words();
  return all;
}

size_t utf8_length(std::string_view rest) {
  const auto first = static_cast<unsigned char>(rest[0]);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || length > rest.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(rest[i]) & 0xc0) != 0x80) return 0;
  if (length == 3 || length == 4) {
    const auto second = static_cast<unsigned char>(rest[1]);
    if (first == 0xe0 && second < 0xa0) return 0;
    if (first == 0xed && second >= 0xa0) return 0;
    if (first == 0xf0 && second < 0x90) return 0;
    if (first == 0xf4 && second >= 0x90) return 0;
  }
  return length;
}

size_t shown_length(std::string_view rest) {
  const size_t length = utf8_length(rest);
  if (length <= 1) return length == 1 && is_printable(rest[0]) ? 1 : 0;
  return is_hidden(code_point(rest.substr(0, length))) ? 0 : length;
}

EncodedText<Terminal> Terminal::encode_text(std::string_view raw) {
  std::string out;
  for (size_t i = 0; i < raw.size();) {
    const size_t length = raw[i] == '\\' ? 0 : shown_length(raw.substr(i));
    if (length == 0) append_hex_escape(out, "\\x", raw[i]);
    out += raw.substr(i, length);
    i += std::max<size_t>(length, 1);
  }
  return EncodedText<Terminal>(std::move(out));
}

EncodedText<Terminal> Terminal::encode(const ModelText& name) { return encode_text(name.raw()); }

EncodedText<CppComment> CppComment::encode(const ModelText& name) {
  // No brackets: what looks for "w[" in generated code finds no name.
  constexpr std::string_view kMarks = "_.-:/+()@#, ";
  std::string out;
  for (char c : name.raw()) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += word || kMarks.find(c) != std::string_view::npos ? c : '_';
    if (out.size() == 120) break;
  }
  return EncodedText<CppComment>(std::move(out));
}

EncodedText<JsonString> JsonString::encode_text(std::string_view raw) {
  std::string out = "\"";
  for (size_t i = 0; i < raw.size();) {
    const char c = raw[i];
    const size_t length = utf8_length(raw.substr(i));
    if (length == 0) {
      out += "\\ufffd";
      ++i;
    } else if (length > 1) {
      // U+2028 and U+2029 end a line in JavaScript; escaping them lets the text stand in a page.
      if (raw.substr(i, 3) == "\xe2\x80\xa8" || raw.substr(i, 3) == "\xe2\x80\xa9") {
        out += raw[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      } else {
        out += raw.substr(i, length);
      }
      i += length;
    } else {
      if (c == '"' || c == '\\') out += {'\\', c};
      else if (c < 0x20 || c == '<' || c == '>' || c == '&' || c == 0x7f) append_hex_escape(out, "\\u00", c);
      else out += c;
      ++i;
    }
  }
  return EncodedText<JsonString>(out + "\"");
}

EncodedText<JsonString> JsonString::encode(const ModelText& name) { return encode_text(name.raw()); }

EncodedText<CppLiteral> CppLiteral::encode(const ModelText& name) {
  std::string out = "\"";
  for (char c : name.raw()) {
    const bool plain = is_printable(c) && c != '"' && c != '\\' && c != '?' && c != '%';
    if (plain) {
      out += c;
    } else {
      // Three octal digits end by themselves, unlike \x, so the next character cannot join them.
      const auto byte = static_cast<unsigned char>(c);
      out += {'\\', static_cast<char>('0' + (byte >> 6)), static_cast<char>('0' + ((byte >> 3) & 7)),
              static_cast<char>('0' + (byte & 7))};
    }
  }
  return EncodedText<CppLiteral>(out + "\"");
}

EncodedText<HtmlText> HtmlText::encode(const ModelText& name) {
  std::string out;
  for (size_t i = 0; i < name.raw().size();) {
    const size_t length = shown_length(std::string_view(name.raw()).substr(i));
    switch (const char c = name.raw()[i]) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (length == 0) append_hex_escape(out, "\\x", c);
        out += name.raw().substr(i, length);
    }
    i += std::max<size_t>(length, 1);
  }
  return EncodedText<HtmlText>(std::move(out));
}

std::vector<std::string_view> split(std::string_view words, std::string_view mark) {
  std::vector<std::string_view> parts;
  for (size_t end = words.find(mark); end != std::string_view::npos; end = words.find(mark)) {
    parts.push_back(words.substr(0, end));
    words.remove_prefix(end + mark.size());
  }
  parts.push_back(words);
  return parts;
}

std::string_view trimmed(std::string_view raw) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = std::min(raw.find_first_not_of(kBlanks), raw.size());
  const size_t end = raw.find_last_not_of(kBlanks);
  return end == std::string_view::npos ? std::string_view() : raw.substr(begin, end + 1 - begin);
}

std::string quoted(const ModelText& name) {
  std::string shown = Terminal::encode(name).str();
  constexpr size_t kMaxBytes = 200;
  if (shown.size() <= kMaxBytes) return text("'", shown, "'");
  size_t end = kMaxBytes - 3;
  while ((static_cast<unsigned char>(shown[end]) & 0xc0) == 0x80) --end;  // before the character, not within it
  shown = text(shown.substr(0, end), "...");
  return text("'", shown, "'");
}

}  // namespace graphpipe
