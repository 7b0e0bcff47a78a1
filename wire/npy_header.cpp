#include "wire/npy_header.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "wire/data_table.h"

namespace graphpipe::wire {
namespace {

constexpr size_t kMaxNpyHeader = 1 << 16;
constexpr size_t kMaxNpyRank = 16;

// Walks the header's Python dictionary; every method returns whether it found what it was asked for.
struct Scanner {
  std::string_view rest;

  void skip_spaces() {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n' || rest[0] == '\t')) rest.remove_prefix(1);
  }
  bool token(std::string_view word) {
    skip_spaces();
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  }
  bool quoted_word(std::string& word) {
    skip_spaces();
    if (rest.empty() || (rest[0] != '\'' && rest[0] != '"')) return false;
    const size_t end = rest.find(rest[0], 1);
    if (end == std::string_view::npos) return false;
    word = std::string(rest.substr(1, end - 1));
    rest.remove_prefix(end + 1);
    return true;
  }
  bool number(int64_t& value) {
    skip_spaces();
    size_t used = 0;
    value = 0;
    for (; used < rest.size() && rest[used] >= '0' && rest[used] <= '9'; ++used)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, rest[used] - '0', &value))
        return false;
    rest.remove_prefix(used);
    return used > 0;
  }
  bool shape(std::vector<int64_t>& dims) {
    if (!token("(")) return false;
    while (!token(")")) {
      int64_t dim = 0;
      if (dims.size() == kMaxNpyRank || !number(dim)) return false;
      dims.push_back(dim);
      if (token(",")) continue;
      return token(")");
    }
    return true;
  }
};

std::optional<ElementType> type_of(std::string_view descr) {
  static constexpr std::pair<std::string_view, ElementType> kTypes[] = {
      {"<f4", ElementType::kFloat32}, {"<f8", ElementType::kFloat64}, {"<f2", ElementType::kFloat16},
      {"<i8", ElementType::kInt64},   {"<i4", ElementType::kInt32},   {"<i2", ElementType::kInt16},
      {"|i1", ElementType::kInt8},    {"|u1", ElementType::kUInt8},   {"|b1", ElementType::kBool},
      {"<u2", ElementType::kUInt16},  {"<u4", ElementType::kUInt32},  {"<u8", ElementType::kUInt64}};
  for (const auto& [name, type] : kTypes)
    if (name == descr) return type;
  return std::nullopt;
}

struct Fields {
  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<int64_t>> dims;
};

bool read_fields(Scanner scanner, Fields& fields) {
  if (!scanner.token("{")) return false;
  while (!scanner.token("}")) {
    std::string key;
    if (!scanner.quoted_word(key) || !scanner.token(":")) return false;
    if (key == "descr" && !fields.descr) {
      if (!scanner.quoted_word(fields.descr.emplace())) return false;
    } else if (key == "fortran_order" && !fields.fortran) {
      if (scanner.token("False")) fields.fortran = false;
      else if (scanner.token("True")) fields.fortran = true;
      else return false;
    } else if (key == "shape" && !fields.dims) {
      if (!scanner.shape(fields.dims.emplace())) return false;
    } else {
      return false;
    }
    if (scanner.token(",")) continue;
    if (!scanner.token("}")) return false;
    break;
  }
  scanner.skip_spaces();
  return scanner.rest.empty() && fields.descr && fields.fortran && fields.dims;
}

}  // namespace

Result<NpyHeader> read_npy_header(std::span<const std::byte> file, const std::string& name) {
  const auto refusal = [&](std::string why, const char* hint = "write it with numpy.save from a C-ordered array") {
    return Diagnostic{.code = Code::kMalformedFile, .origin = ModelText(name), .message = std::move(why), .hint = hint};
  };
  const auto byte = [&](size_t index) { return static_cast<size_t>(file[index]); };
  if (file.size() < 10 || std::memcmp(file.data(), "\x93NUMPY", 6) != 0) return refusal("not an .npy file");
  const size_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0) return refusal("an .npy version that is not 1.0, 2.0 or 3.0");
  const size_t start = version == 1 ? 10 : 12;
  if (file.size() < start) return refusal("it ends within its header");
  const size_t length = byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (length > kMaxNpyHeader || file.size() - start < length)
    return refusal("its header is longer than the file or than 64 KiB");

  Fields fields;
  const std::string_view words(reinterpret_cast<const char*>(file.data()) + start, length);
  if (!read_fields(Scanner{words}, fields)) return refusal("its header is malformed");
  const std::optional<ElementType> type = type_of(*fields.descr);
  if (!type && fields.descr->starts_with('>'))
    return refusal("its numbers are big-endian (" + quoted(ModelText(*fields.descr)) + ")",
                   "convert it: numpy.save(path, array.astype(array.dtype.newbyteorder('<')))");
  if (!type) return refusal("element type " + quoted(ModelText(*fields.descr)) + " is not supported");
  if (*fields.fortran) return refusal("it is in Fortran order");

  NpyHeader header{.type = *type, .dims = *fields.dims, .data_offset = start + length};
  int64_t bytes = element_size(*type);
  for (int64_t dim : header.dims)
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return refusal("its shape overflows");
  if (static_cast<uint64_t>(bytes) != file.size() - header.data_offset)
    return refusal(text("its shape ", shape_text(header.dims), " asks for ", bytes, " bytes of data, it has ",
                        file.size() - header.data_offset));
  return header;
}

}  // namespace graphpipe::wire
