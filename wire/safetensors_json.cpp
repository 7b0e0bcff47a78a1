#include "wire/safetensors_json.h"

#include "support/text.h"

namespace graphpipe::wire {
namespace {

void append_utf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

void JsonScanner::skip_spaces() {
  while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t' || rest_[0] == '\r'))
    rest_.remove_prefix(1);
}

bool JsonScanner::token(char c) {
  skip_spaces();
  if (rest_.empty() || rest_[0] != c) return false;
  rest_.remove_prefix(1);
  return true;
}

bool JsonScanner::number(int64_t& value) {
  skip_spaces();
  if (rest_.size() > 1 && rest_[0] == '0' && rest_[1] >= '0' && rest_[1] <= '9') return false;  // JSON has no 007
  size_t used = 0;
  value = 0;
  for (; used < rest_.size() && rest_[used] >= '0' && rest_[used] <= '9'; ++used)
    if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, rest_[used] - '0', &value))
      return false;
  rest_.remove_prefix(used);
  return used > 0;
}

bool JsonScanner::string(std::string& out) {
  if (!token('"')) return false;
  while (!rest_.empty() && rest_[0] != '"') {
    if (static_cast<unsigned char>(rest_[0]) < 0x20) return false;
    if (rest_[0] == '\\') {
      if (!escape(out)) return false;
      continue;
    }
    const size_t length = utf8_length(rest_);
    if (length == 0) return false;
    out += rest_.substr(0, length);
    rest_.remove_prefix(length);
  }
  return token('"');
}

bool JsonScanner::at_end() {
  skip_spaces();
  return rest_.empty();
}

bool JsonScanner::hex(uint32_t& code) {
  if (rest_.size() < 4) return false;
  code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = rest_[static_cast<size_t>(i)];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return false;
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  rest_.remove_prefix(4);
  return true;
}

bool JsonScanner::escape(std::string& out) {
  if (rest_.size() < 2) return false;
  const char c = rest_[1];
  rest_.remove_prefix(2);
  constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  if (const size_t index = kFrom.find(c); index != std::string_view::npos) {
    out += kTo[index];
    return true;
  }
  uint32_t code = 0, low = 0;
  if (c != 'u' || !hex(code)) return false;
  if (code >= 0xd800 && code < 0xdc00) {
    if (!rest_.starts_with("\\u")) return false;
    rest_.remove_prefix(2);
    if (!hex(low) || low < 0xdc00 || low > 0xdfff) return false;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) {
    return false;
  }
  append_utf8(out, code);
  return true;
}

}  // namespace graphpipe::wire
