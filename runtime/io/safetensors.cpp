#include "runtime/io/safetensors.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/error.h"
#include "runtime/io/output_file.h"
#include "runtime/io/safetensors_header.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

constexpr uint64_t kMaxHeader = 100 << 20;  // what other readers accept

std::optional<at::ScalarType> type_of(const std::string& name) {
  const auto* info = wire::find_element_type(&wire::ElementTypeInfo::safetensors_name, name);
  if (info == nullptr) return std::nullopt;
  return scalar_type(info->type);
}

std::string name_of(at::ScalarType type) {
  const std::optional<ElementType> element = element_type(type);
  if (!element)
    fail(Code::kUnsupportedType, text("safetensors cannot hold elements of type ", c10::toString(type)),
         "leave this tensor out");
  return std::string(wire::find_element_type(*element)->safetensors_name);
}

// Whether the entry's offsets hold exactly its elements; fills `place`.
bool fits(const HeaderEntry& entry, int64_t data_bytes, TensorPlace& place) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(place.type));
  for (int64_t dim : entry.dims)
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return false;
  place.dims = entry.dims;
  place.bytes = static_cast<size_t>(bytes);
  return entry.begin <= entry.end && entry.end <= data_bytes && entry.end - entry.begin == bytes;
}

std::string header_of(const std::vector<NamedTensor>& tensors) {
  std::string header = "{";
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (offset > 0 || header.size() > 1) header += ",";
    header += JsonString::encode_text(name).str() + ":{\"dtype\":\"" + name_of(tensor.scalar_type()) +
              "\",\"shape\":" + shape_text({tensor.sizes().data(), tensor.sizes().size()}) + ",\"data_offsets\":[" +
              std::to_string(offset) + "," + std::to_string(offset + tensor.nbytes()) + "]}";
    offset += tensor.nbytes();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

std::map<std::string, TensorPlace> read_safetensors_header(std::span<const std::byte> file, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    fail(Code::kMalformedFile, quoted(ModelText(name)) + ": " + why, "write it again with a safetensors library");
  };
  uint64_t length = 0;
  if (file.size() < 8) refuse("too short for a safetensors file");
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxHeader || length > file.size() - 8) refuse("its header is longer than the file or than 100 MiB");
  std::vector<HeaderEntry> entries;
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (const std::string why = scan_safetensors_header(json, entries); !why.empty()) refuse(why);

  const auto data_bytes = static_cast<int64_t>(file.size() - 8 - length);
  std::map<std::string, TensorPlace> places;
  for (const HeaderEntry& entry : entries) {
    const std::string who = "tensor " + quoted(ModelText(entry.name));
    TensorPlace place;
    const std::optional<at::ScalarType> type = type_of(entry.dtype);
    if (!type) refuse(who + " has element type " + quoted(ModelText(entry.dtype)) + ", which is not supported");
    place.type = *type;
    if (!fits(entry, data_bytes, place)) refuse(who + " does not fit its offsets or the file");
    place.offset = 8 + length + static_cast<size_t>(entry.begin);
    if (!places.emplace(entry.name, std::move(place)).second) refuse(who + " stands there twice");
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  int64_t covered = 0;
  for (const HeaderEntry& entry : entries) {
    if (entry.begin != covered) refuse("its tensors overlap or leave holes");
    covered = entry.end;
  }
  if (covered != data_bytes) refuse("bytes follow its last tensor");
  return places;
}

Safetensors::Safetensors(const std::string& path)
    : file_(value_or_throw(MappedFile::open(path))), tensors_(read_safetensors_header(file_.bytes(), path)) {}

const TensorPlace* Safetensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

at::Tensor Safetensors::view(const TensorPlace& place) const {
  return at::from_blob(const_cast<std::byte*>(file_.bytes().data()) + place.offset, place.dims,
                       at::TensorOptions().dtype(place.type));
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  const std::string header = header_of(tensors);
  const uint64_t length = header.size();
  OutputFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor dense = tensor.contiguous();
    file.write(bytes_in(dense));
  }
  file.keep();
}

}  // namespace graphpipe::runtime
