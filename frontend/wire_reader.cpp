#include "frontend/wire_reader.h"

namespace graphpipe::frontend {

std::optional<WireField> WireReader::next() {
  if (malformed_ || position_ == bytes_.size()) return std::nullopt;
  const size_t start = position_;
  WireField field;
  uint64_t tag = 0;
  malformed_ = !read_varint(tag) || tag >> 32 != 0 || tag >> 3 == 0;
  if (malformed_) return std::nullopt;
  field.number = static_cast<uint32_t>(tag >> 3);
  field.type = static_cast<WireType>(tag & 7);
  malformed_ = !read_value(field);
  if (malformed_) return std::nullopt;
  field.whole = bytes_.substr(start, position_ - start);
  return field;
}

bool WireReader::read_value(WireField& field) {
  switch (field.type) {
    case WireType::kVarint:
      return read_varint(field.scalar);
    case WireType::kFixed64:
      return read_fixed(8, field.scalar);
    case WireType::kFixed32:
      return read_fixed(4, field.scalar);
    case WireType::kLengthDelimited: {
      uint64_t length = 0;
      if (!read_varint(length) || length > bytes_.size() - position_) return false;
      field.content = bytes_.substr(position_, length);
      position_ += length;
      return true;
    }
  }
  return false;  // groups: ONNX has none
}

bool WireReader::read_varint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && position_ < bytes_.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes_[position_++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool WireReader::read_fixed(size_t width, uint64_t& value) {
  if (bytes_.size() - position_ < width) return false;
  value = 0;
  for (size_t i = 0; i < width; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[position_ + i])) << (8 * i);
  position_ += width;
  return true;
}

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_field(std::string& out, uint32_t number, std::string_view content) {
  append_varint(out, static_cast<uint64_t>(number) << 3 | 2);
  append_varint(out, content.size());
  out.append(content);
}

void append_varint_field(std::string& out, uint32_t number, uint64_t value) {
  append_varint(out, static_cast<uint64_t>(number) << 3);
  append_varint(out, value);
}

}  // namespace graphpipe::frontend
