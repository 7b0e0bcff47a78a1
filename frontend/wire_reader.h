#pragma once
// Reads the Protocol Buffers wire format field by field from untrusted bytes. Never reads past the end and allocates
// nothing. (Protocol Buffers documentation, "Encoding".)

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace graphpipe::frontend {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

struct WireField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  /// The value of a varint or fixed field.
  uint64_t scalar = 0;
  /// The content of a length-delimited field.
  std::string_view content;
  /// Tag and content as they appear in the file.
  std::string_view whole;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  /// The next field; nullopt at the end or at the first malformed byte, which `malformed` distinguishes.
  std::optional<WireField> next();
  bool malformed() const { return malformed_; }

 private:
  bool read_varint(uint64_t& value);
  bool read_fixed(size_t width, uint64_t& value);
  bool read_value(WireField& field);

  std::string_view bytes_;
  size_t position_ = 0;
  bool malformed_ = false;
};

/// Appends a varint, or a length-delimited field.
void append_varint(std::string& out, uint64_t value);
void append_field(std::string& out, uint32_t number, std::string_view content);
void append_varint_field(std::string& out, uint32_t number, uint64_t value);

}  // namespace graphpipe::frontend
