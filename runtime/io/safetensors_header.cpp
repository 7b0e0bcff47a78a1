#include "runtime/io/safetensors_header.h"

namespace graphpipe::runtime {
namespace {

constexpr size_t kMaxRank = 64;

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

class HeaderScanner {
 public:
  explicit HeaderScanner(std::string_view text) : rest_(text) {}

  void skip_spaces() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t' || rest_[0] == '\r'))
      rest_.remove_prefix(1);
  }

  bool token(char c) {
    skip_spaces();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool number(int64_t& value) {
    skip_spaces();
    size_t used = 0;
    value = 0;
    for (; used < rest_.size() && rest_[used] >= '0' && rest_[used] <= '9'; ++used)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, rest_[used] - '0', &value))
        return false;
    rest_.remove_prefix(used);
    return used > 0;
  }

  bool numbers(std::vector<int64_t>& values) {
    if (!token('[')) return false;
    if (token(']')) return true;
    do {
      int64_t value = 0;
      if (values.size() == kMaxRank || !number(value)) return false;
      values.push_back(value);
    } while (token(','));
    return token(']');
  }

  bool string(std::string& out) {
    if (!token('"')) return false;
    while (!rest_.empty() && rest_[0] != '"') {
      if (static_cast<unsigned char>(rest_[0]) < 0x20) return false;
      if (rest_[0] == '\\') {
        if (!escape(out)) return false;
      } else {
        out += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    return token('"');
  }

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

 private:
  bool hex(uint32_t& code) {
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

  bool escape(std::string& out) {
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

  std::string_view rest_;
};

bool scan_metadata(HeaderScanner& scanner) {
  if (!scanner.token('{')) return false;
  if (scanner.token('}')) return true;
  do {
    std::string key, value;
    if (!scanner.string(key) || !scanner.token(':') || !scanner.string(value)) return false;
  } while (scanner.token(','));
  return scanner.token('}');
}

bool scan_entry(HeaderScanner& scanner, HeaderEntry& entry) {
  bool has_shape = false;
  std::vector<int64_t> offsets;
  if (!scanner.token('{')) return false;
  do {
    std::string key;
    if (!scanner.string(key) || !scanner.token(':')) return false;
    if (key == "dtype" && entry.dtype.empty()) {
      if (!scanner.string(entry.dtype) || entry.dtype.empty()) return false;
    } else if (key == "shape" && !has_shape) {
      has_shape = true;
      if (!scanner.numbers(entry.dims)) return false;
    } else if (key == "data_offsets" && offsets.empty()) {
      if (!scanner.numbers(offsets) || offsets.size() != 2) return false;
      entry.begin = offsets[0];
      entry.end = offsets[1];
    } else {
      return false;
    }
  } while (scanner.token(','));
  return scanner.token('}') && has_shape && !entry.dtype.empty() && entry.begin >= 0;
}

}  // namespace

std::string scan_safetensors_header(std::string_view json, std::vector<HeaderEntry>& entries) {
  HeaderScanner scanner(json);
  if (!scanner.token('{')) return "its header is not a JSON object";
  if (!scanner.token('}')) {
    do {
      HeaderEntry entry;
      if (!scanner.string(entry.name) || !scanner.token(':')) return "its header is malformed";
      if (entry.name == "__metadata__") {
        if (!scan_metadata(scanner)) return "its __metadata__ is malformed";
        continue;
      }
      if (!scan_entry(scanner, entry)) return "one of its header's entries is malformed";
      entries.push_back(std::move(entry));
    } while (scanner.token(','));
    if (!scanner.token('}')) return "its header is malformed";
  }
  return scanner.at_end() ? "" : "its header is followed by something else";
}

}  // namespace graphpipe::runtime
