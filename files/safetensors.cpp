#include "files/safetensors.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "files/proto_json.h"
#include "files/strict_json.h"
#include "files/text_file.h"
#include "support/output_file.h"
#include "wire/element_type.h"

namespace graphpipe::files {
namespace {

// Offsets pass through a double on their way in.
constexpr double kMaxExact = 0x1p53;
constexpr std::string_view kMetadata = "__metadata__";

Diagnostic problem(Code code, const ModelText& tensor, std::string message) {
  return {.code = code,
          .origin = tensor,
          .message = std::move(message),
          .hint = "the file is damaged or no safetensors file: write it again"};
}

// Bytes of a tensor, or nullopt where they leave int64_t.
std::optional<int64_t> byte_length(ir::DType dtype, const std::vector<int64_t>& shape) {
  int64_t length = ir::bytes_per_element(dtype);
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(length, size, &length)) return std::nullopt;
  return length;
}

// A tensor of the header; its two offsets count from the end of the header.
struct Draft {
  TensorEntry entry;
  bool has_dtype = false, has_shape = false;
  std::vector<int64_t> offsets;
};

// Builds the drafts from the scan's events.
class HeaderReader {
 public:
  std::string see(const JsonEvent& event) {
    if (event.path.empty()) return event.kind == JsonKind::kObject ? "" : "must be an object";
    if (event.path[0] == kMetadata) return see_metadata(event);
    if (event.path.size() == 1) {
      if (event.kind != JsonKind::kObject) return "must be an object";
      drafts_.emplace_back().entry.name = ModelText(event.path[0]);
      return {};
    }
    if (drafts_.empty() || drafts_.back().entry.name.raw() != event.path[0]) return {};
    return see_field(event, drafts_.back());
  }

  std::vector<Draft>& drafts() { return drafts_; }
  TensorMetadata& metadata() { return metadata_; }

 private:
  std::string see_metadata(const JsonEvent& event) {
    if (event.path.size() == 1) return event.kind == JsonKind::kObject ? "" : "must be an object";
    if (event.kind != JsonKind::kString) return "must be a string";
    metadata_.emplace_back(ModelText(event.path[1]), ModelText(std::string(event.string)));
    return {};
  }

  static std::string see_field(const JsonEvent& event, Draft& draft) {
    const std::string& field = event.path[1];
    if (field == "dtype") {
      const bool is_name = event.path.size() == 2 && event.kind == JsonKind::kString;
      const auto* info =
          is_name ? wire::find_element_type(&wire::ElementTypeInfo::safetensors_name, event.string) : nullptr;
      if (info == nullptr) return "is no element type that is supported";
      draft.entry.dtype = info->type;
      draft.has_dtype = true;
      return {};
    }
    if (field != "shape" && field != "data_offsets") return "unknown field";
    if (event.path.size() == 2) {
      if (event.kind != JsonKind::kArray) return "must be a list";
      draft.has_shape = draft.has_shape || field == "shape";
      return {};
    }
    if (event.path.size() > 3 || event.kind != JsonKind::kInteger || event.number < 0 || event.number >= kMaxExact)
      return "must be an integer from 0 to 2^53";
    (field == "shape" ? draft.entry.shape : draft.offsets).push_back(static_cast<int64_t>(event.number));
    return {};
  }

  std::vector<Draft> drafts_;
  TensorMetadata metadata_;
};

// Fills in where the tensor lies; `data_size` bounds it.
std::string place(Draft& draft, int64_t data_start, int64_t data_size) {
  if (!draft.has_dtype) return "has no dtype";
  if (!draft.has_shape) return "has no shape";
  if (draft.offsets.size() != 2) return "needs two data_offsets";
  const int64_t first = draft.offsets[0], last = draft.offsets[1];
  if (first > last || last > data_size)
    return text("lies at [", first, ", ", last, ") of ", data_size, " bytes of data");
  const std::optional<int64_t> length = byte_length(draft.entry.dtype, draft.entry.shape);
  if (!length || *length != last - first) return text("has a shape that does not fit its ", last - first, " bytes");
  draft.entry.offset = data_start + first;
  draft.entry.length = *length;
  return {};
}

// Each tensor must start where the one before ends.
Diagnostics check_cover(const std::vector<TensorEntry>& tensors, int64_t data_start, int64_t file_size) {
  Diagnostics problems;
  int64_t end = data_start;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset != end)
      problems.push_back(
          problem(Code::kMalformedFile, tensor.name,
                  tensor.offset > end ? "there is a hole before the tensor" : "the tensor overlaps the one before it"));
    end = std::max(end, tensor.offset + tensor.length);
  }
  if (problems.empty() && end != file_size)
    problems.push_back(
        problem(Code::kMalformedFile, ModelText(), text("the tensors end at byte ", end, ", the file at ", file_size)));
  return problems;
}

Result<int64_t> header_size(std::string_view start, int64_t file_size) {
  if (file_size < 8 || start.size() < 8)
    return problem(Code::kMalformedFile, ModelText(), "the file is too short for a header");
  uint64_t size = 0;
  for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<unsigned char>(start[i]);
  if (size > static_cast<uint64_t>(kMaxHeaderBytes))
    return problem(Code::kLimitExceeded, ModelText(),
                   text("its header has ", size, " bytes, the limit is ", kMaxHeaderBytes));
  if (size > static_cast<uint64_t>(file_size - 8))
    return problem(Code::kMalformedFile, ModelText(),
                   text("its header has ", size, " bytes, the file only ", file_size));
  return static_cast<int64_t>(size);
}

Diagnostics check_names(const std::vector<TensorToWrite>& tensors) {
  Diagnostics problems;
  std::vector<std::string> names;
  const auto report = [&](const ModelText& name, Code code, std::string_view what, std::string_view hint) {
    problems.push_back({.code = code, .origin = name, .message = std::string(what), .hint = std::string(hint)});
  };
  for (const TensorToWrite& tensor : tensors) {
    const std::string_view raw = tensor.name.raw();
    names.emplace_back(raw);
    bool is_utf8 = true;
    for (size_t i = 0; i < raw.size() && is_utf8;) {
      const size_t length = utf8_length(raw.substr(i));
      is_utf8 = length > 0;
      i += length;
    }
    if (!is_utf8 || raw == kMetadata)
      report(tensor.name, Code::kBadModel, "a safetensors file cannot hold a tensor of this name",
             "rename the parameter");
    if (!byte_length(tensor.dtype, tensor.shape))
      report(tensor.name, Code::kLimitExceeded, "the tensor has more than 2^63 bytes", "check its shape");
  }
  std::ranges::sort(names);
  for (size_t i = 1; i < names.size(); ++i)
    if (names[i] == names[i - 1])
      report(ModelText(names[i]), Code::kBadModel, "two tensors have this name", "rename one of the parameters");
  return problems;
}

std::string print_entry(const TensorToWrite& tensor, int64_t first, int64_t last) {
  const std::string_view type = wire::find_element_type(tensor.dtype)->safetensors_name;
  std::string shape;
  for (int64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
  return text(JsonString::encode(tensor.name).str(), ":{\"dtype\":\"", type, "\",\"shape\":[", shape,
              "],\"data_offsets\":[", first, ",", last, "]}");
}

// The header with its size before it, padded so that the data starts at a multiple of 8.
Result<std::string> header_of(const std::vector<TensorToWrite>& tensors, const std::vector<size_t>& order,
                              const TensorMetadata& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += text("\"", kMetadata, "\":{");
    for (const auto& [key, value] : metadata)
      header +=
          text(header.back() == '{' ? "" : ",", JsonString::encode(key).str(), ":", JsonString::encode(value).str());
    header += "}";
  }
  int64_t end = 0;
  for (size_t index : order) {
    const int64_t first = end;
    if (__builtin_add_overflow(end, *byte_length(tensors[index].dtype, tensors[index].shape), &end))
      return problem(Code::kLimitExceeded, tensors[index].name, "the tensors have more than 2^63 bytes together");
    header += (header == "{" ? "" : ",") + print_entry(tensors[index], first, end);
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(header.size()) > kMaxHeaderBytes)
    return problem(Code::kLimitExceeded, ModelText(), text("the header would have ", header.size(), " bytes"));
  std::string size;
  for (size_t i = 0; i < 8; ++i) size += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return size + header;
}

Status write_tensor(OutputFile& file, const TensorToWrite& tensor, size_t index, const TensorSource& source) {
  const int64_t length = *byte_length(tensor.dtype, tensor.shape);
  int64_t written = 0;
  GP_TRY_VOID(source(index, [&](std::string_view bytes) -> Status {
    written += static_cast<int64_t>(bytes.size());
    if (written > length) return Ok{};  // reported below
    return file.write(bytes);
  }));
  if (written != length)
    return Diagnostic{.code = Code::kUnreadableFile,
                      .origin = tensor.name,
                      .message = text("its data has ", written, " bytes, the tensor ", length),
                      .hint = "check the file that holds it"};
  return Ok{};
}

}  // namespace

Result<SafetensorsIndex> parse_safetensors(std::string_view start, int64_t file_size) {
  GP_TRY(const int64_t size, header_size(start, file_size));
  const std::string_view rest = start.substr(8);
  if (static_cast<int64_t>(rest.size()) < size || !rest.starts_with('{'))
    return problem(Code::kMalformedFile, ModelText(), "its header is no JSON object");
  HeaderReader reader;
  GP_TRY_VOID(scan_json(rest.substr(0, static_cast<size_t>(size)), {.max_bytes = kMaxHeaderBytes, .deepest = 4},
                        [&](const JsonEvent& event) { return reader.see(event); }));
  SafetensorsIndex index{.tensors = {}, .metadata = std::move(reader.metadata())};
  Diagnostics problems;
  for (Draft& draft : reader.drafts()) {
    const std::string wrong = place(draft, 8 + size, file_size - 8 - size);
    if (!wrong.empty()) problems.push_back(problem(Code::kMalformedFile, draft.entry.name, wrong));
    index.tensors.push_back(std::move(draft.entry));
  }
  if (!problems.empty()) return problems;
  std::ranges::stable_sort(index.tensors, {}, [](const TensorEntry& t) { return std::pair(t.offset, t.length); });
  problems = check_cover(index.tensors, 8 + size, file_size);
  if (!problems.empty()) return problems;
  return index;
}

Result<SafetensorsIndex> read_safetensors(const std::string& path) {
  // The size of the header first: the data behind it may be of any size.
  GP_TRY(const FileStart head, read_start(path, 8));
  const Result<int64_t> size = header_size(head.bytes, head.file_size);
  if (!size.ok()) return with_origin(size.problems(), path);
  GP_TRY(const FileStart start, read_start(path, 8 + *size));
  Result<SafetensorsIndex> index = parse_safetensors(start.bytes, start.file_size);
  if (!index.ok()) return with_origin(index.problems(), path);
  return index;
}

Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors, const TensorSource& source,
                         const TensorMetadata& metadata) {
  Diagnostics problems = check_names(tensors);
  if (!problems.empty()) return problems;
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return ir::bytes_per_element(tensors[i].dtype); });
  GP_TRY(const std::string header, header_of(tensors, order, metadata));
  Result<OutputFile> file = OutputFile::create(path);
  if (!file.ok()) return file.problems();
  GP_TRY_VOID(file->write(header));
  for (size_t index : order) GP_TRY_VOID(write_tensor(*file, tensors[index], index, source));
  return file->commit();
}

}  // namespace graphpipe::files
