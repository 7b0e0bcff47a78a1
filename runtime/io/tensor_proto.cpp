#include "runtime/io/tensor_proto.h"

#include <cstring>
#include <optional>

#include "runtime/error.h"
#include "wire/data_table.h"
#include "wire/packed_elements.h"

namespace graphpipe::runtime {
namespace {

using ProtoBytes = std::span<const std::byte>;

// Protocol Buffers' wire types.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

// Fields of TensorProto (onnx.proto).
enum Field : uint32_t {
  kDims = 1,
  kDataType = 2,
  kSegment = 3,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14,
};

constexpr size_t kMaxDims = 64;

std::optional<ElementType> element_type(uint64_t data_type) {
  const wire::ElementTypeInfo* info =
      data_type > 1000 ? nullptr : wire::find_element_type_of_onnx(static_cast<int64_t>(data_type));
  return info == nullptr ? std::nullopt : std::optional(info->type);
}

class Reader {
 public:
  Reader(ProtoBytes file, const std::string& path) : rest_(file), path_(path) {}

  StoredTensor read();

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    graphpipe::runtime::fail(Code::kMalformedFile, quoted(ModelText(path_)) + ": " + why,
                             "write it with onnx.numpy_helper.from_array and SerializeToString");
  }
  static bool take(ProtoBytes& from, size_t count, ProtoBytes& taken);
  uint64_t varint(ProtoBytes& from) const;
  void field(uint32_t number, uint32_t wire);
  void numbers(uint32_t number, ProtoBytes packed);
  void number(uint32_t number, uint64_t bits);
  void append(uint64_t bits, size_t width);
  void finish();

  ProtoBytes rest_;
  const std::string& path_;
  StoredTensor tensor_;
  std::optional<ElementType> type_;
  uint64_t data_type_ = 0;
  bool has_raw_ = false;
  // Elements that were given one by one, as bits; their width depends on the type, which may come after them.
  std::vector<uint64_t> elements_;
};

bool Reader::take(ProtoBytes& from, size_t count, ProtoBytes& taken) {
  if (count > from.size()) return false;
  taken = from.first(count);
  from = from.subspan(count);
  return true;
}

uint64_t Reader::varint(ProtoBytes& from) const {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    ProtoBytes byte;
    if (!take(from, 1, byte)) refuse("it ends within a number");
    const auto bits = static_cast<uint64_t>(byte[0]);
    value |= (bits & 127) << shift;
    if (bits < 128) return value;
  }
  refuse("a number is longer than ten bytes");
}

void Reader::number(uint32_t field, uint64_t bits) {
  if (field == kDims) {
    if (tensor_.dims.size() == kMaxDims) refuse("it has more than 64 dims");
    tensor_.dims.push_back(static_cast<int64_t>(bits));
  } else if (field == kDataType) {
    data_type_ = bits;
    type_ = element_type(bits);
  } else if (field == kDataLocation) {
    if (bits != 0) refuse("its data lie in another file");
  } else if (field == kFloatData || field == kInt32Data || field == kInt64Data || field == kDoubleData ||
             field == kUint64Data) {
    elements_.push_back(bits);
  }
}

void Reader::numbers(uint32_t field, ProtoBytes packed) {
  const size_t width = field == kFloatData ? 4 : field == kDoubleData ? 8 : 0;
  while (!packed.empty()) {
    uint64_t bits = 0;
    ProtoBytes element;
    if (width == 0) bits = varint(packed);
    else if (take(packed, width, element)) std::memcpy(&bits, element.data(), width);
    else refuse("a list ends within an element");
    number(field, bits);
  }
}

void Reader::field(uint32_t number_of_field, uint32_t wire) {
  ProtoBytes content;
  uint64_t bits = 0;
  if (wire == kVarint) return number(number_of_field, varint(rest_));
  if (wire == kFixed32 || wire == kFixed64) {
    const size_t width = wire == kFixed32 ? 4 : 8;
    if (!take(rest_, width, content)) refuse("it ends within an element");
    std::memcpy(&bits, content.data(), width);
    return number(number_of_field, bits);
  }
  if (wire != kLength) refuse("not a TensorProto");
  if (const uint64_t length = varint(rest_); length > rest_.size() || !take(rest_, length, content))
    refuse("a field is longer than the file");
  switch (number_of_field) {
    case kName:
      tensor_.name.assign(reinterpret_cast<const char*>(content.data()), content.size());
      break;
    case kRawData:
      has_raw_ = true;
      tensor_.bytes.assign(content.begin(), content.end());
      break;
    case kSegment:
    case kStringData:
    case kExternalData:
      refuse("it holds strings, or data in parts or in another file");
    case kDims:
    case kFloatData:
    case kInt32Data:
    case kInt64Data:
    case kDoubleData:
    case kUint64Data:
      numbers(number_of_field, content);
      break;
    default:
      break;
  }
}

void Reader::append(uint64_t bits, size_t width) {
  const size_t at = tensor_.bytes.size();
  tensor_.bytes.resize(at + width);
  std::memcpy(tensor_.bytes.data() + at, &bits, width);
}

void Reader::finish() {
  if (!type_) refuse(text("element type ", data_type_, " of ONNX is not supported"));
  tensor_.type = *type_;
  const int64_t width = wire::element_size(*type_);
  int64_t wanted = width;
  for (const int64_t dim : tensor_.dims)
    if (dim < 0 || __builtin_mul_overflow(wanted, dim, &wanted)) refuse("its dims are no shape");
  if (!has_raw_)
    for (const uint64_t bits : elements_) append(bits, static_cast<size_t>(width));
  if (wire::kElementTypes[static_cast<size_t>(*type_)].packed > 1) {
    std::optional<std::vector<std::byte>> unpacked = wire::unpack_elements(*type_, tensor_.bytes, wanted);
    if (!unpacked)
      refuse(text("its shape ", wire::shape_text(tensor_.dims), " asks for ", wanted,
                  " packed elements, its data have ", tensor_.bytes.size(), " bytes"));
    tensor_.bytes = *std::move(unpacked);
  }
  if (static_cast<uint64_t>(wanted) != tensor_.bytes.size())
    refuse(text("its shape ", wire::shape_text(tensor_.dims), " asks for ", wanted, " bytes of data, it has ",
                tensor_.bytes.size()));
}

StoredTensor Reader::read() {
  while (!rest_.empty()) {
    const uint64_t key = varint(rest_);
    if (key >> 3 == 0 || key >> 3 > 1'000'000) refuse("not a TensorProto");
    field(static_cast<uint32_t>(key >> 3), static_cast<uint32_t>(key & 7));
  }
  finish();
  return std::move(tensor_);
}

}  // namespace

StoredTensor read_tensor_proto(ProtoBytes file, const std::string& path) { return Reader(file, path).read(); }

}  // namespace graphpipe::runtime
