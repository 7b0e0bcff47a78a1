#include "wire/safetensors.h"

#include <algorithm>
#include <functional>
#include <set>

#include "wire/safetensors_json.h"

namespace graphpipe::wire {
namespace {

Diagnostic bad_safetensors(Code code, const ModelText& tensor, std::string message) {
  return {.code = code,
          .origin = tensor,
          .message = std::move(message),
          .hint = "the file is damaged or no safetensors file: write it again"};
}

/// A tensor of the header; its two offsets count from the end of the header.
struct Draft {
  TensorEntry entry;
  std::optional<std::vector<int64_t>> shape, offsets;
  bool has_dtype = false;
};

/// Reads the JSON; the first thing that is wrong ends it.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view json) : scanner_(json) {}

  /// Whether all was well; else problem() says what was not.
  bool read() {
    const bool whole = members("its header", [this](const std::string& name) {
      if (name == kMetadataName) return read_metadata();
      drafts_.emplace_back().entry.name = ModelText(name);
      return members("it", [this](const std::string& field) { return read_field(field, drafts_.back()); });
    });
    if (whole && !scanner_.at_end()) fail("its header is followed by something else");
    return problem_.empty();
  }

  Diagnostic problem() const {
    return bad_safetensors(Code::kMalformedFile, drafts_.empty() ? ModelText() : drafts_.back().entry.name, problem_);
  }
  std::vector<Draft>& drafts() { return drafts_; }
  TensorMetadata& metadata() { return metadata_; }

 private:
  bool fail(std::string what) {
    if (problem_.empty()) problem_ = std::move(what);
    return false;
  }

  /// An object, whose members `member` reads by their names.
  bool members(std::string_view what, const std::function<bool(const std::string&)>& member) {
    std::set<std::string> seen;
    if (!scanner_.token('{')) return fail(text(what, " must be an object"));
    if (scanner_.token('}')) return true;
    do {
      std::string name;
      if (!scanner_.string(name) || !scanner_.token(':')) return fail(text(what, " must be an object of named values"));
      if (!seen.insert(name).second) return fail(text(quoted(ModelText(name)), " stands here twice"));
      if (!member(name)) return fail(text(quoted(ModelText(name)), " cannot be read"));
    } while (scanner_.token(','));
    return scanner_.token('}') || fail(text(what, " must be an object, and does not end"));
  }

  bool read_metadata() {
    return members("the metadata", [this](const std::string& key) {
      std::string value;
      if (!scanner_.string(value)) return fail("metadata must be a string");
      metadata_.emplace_back(ModelText(key), ModelText(std::move(value)));
      return true;
    });
  }

  bool read_field(const std::string& field, Draft& draft) {
    if (field == "dtype") return read_type(draft);
    if (field != "shape" && field != "data_offsets")
      return fail(text("has the unknown field ", quoted(ModelText(field))));
    std::vector<int64_t>& numbers = (field == "shape" ? draft.shape : draft.offsets).emplace();
    if (!scanner_.token('[')) return fail(text(field, " must be a list"));
    if (scanner_.token(']')) return true;
    do {
      if (!scanner_.number(numbers.emplace_back())) return fail(text(field, " must be an integer from 0 to 2^63 - 1"));
    } while (scanner_.token(','));
    return scanner_.token(']') || fail(text(field, " must be an integer, or a list that ends"));
  }

  bool read_type(Draft& draft) {
    std::string name;
    const ElementTypeInfo* info =
        scanner_.string(name) ? find_element_type(&ElementTypeInfo::safetensors_name, name) : nullptr;
    if (info == nullptr) return fail(text(quoted(ModelText(name)), " is no element type that is supported"));
    draft.entry.dtype = info->type;
    draft.has_dtype = true;
    return true;
  }

  JsonScanner scanner_;
  std::vector<Draft> drafts_;
  TensorMetadata metadata_;
  std::string problem_;
};

/// Fills in where the tensor lies; `data_size` bounds it. What is wrong, or nothing.
std::string place(Draft& draft, int64_t data_start, int64_t data_size) {
  if (!draft.has_dtype) return "has no dtype";
  if (!draft.shape) return "has no shape";
  if (!draft.offsets || draft.offsets->size() != 2) return "needs two data_offsets";
  const int64_t first = draft.offsets->front(), last = draft.offsets->back();
  if (first > last || last > data_size)
    return text("lies at [", first, ", ", last, ") of ", data_size, " bytes of data");
  const std::optional<int64_t> length = byte_length(draft.entry.dtype, *draft.shape);
  if (!length || *length != last - first) return text("has a shape that does not fit its ", last - first, " bytes");
  draft.entry.shape = std::move(*draft.shape);
  draft.entry.offset = data_start + first;
  draft.entry.length = *length;
  return {};
}

/// Each tensor must start where the one before ends.
Diagnostics check_cover(const std::vector<TensorEntry>& tensors, int64_t data_start, int64_t file_size) {
  Diagnostics problems;
  int64_t end = data_start;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset != end)
      problems.push_back(bad_safetensors(
          Code::kMalformedFile, tensor.name,
          tensor.offset > end ? "there is a hole before the tensor" : "the tensor overlaps the one before it"));
    end = std::max(end, tensor.offset + tensor.length);
  }
  if (problems.empty() && end != file_size)
    problems.push_back(bad_safetensors(Code::kMalformedFile, ModelText(),
                                       text("the tensors end at byte ", end, ", the file at ", file_size)));
  return problems;
}

std::string print_entry(const TensorEntry& tensor, int64_t first, int64_t last) {
  std::string shape;
  for (int64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
  return text(JsonString::encode(tensor.name).str(), ":{\"dtype\":\"",
              find_element_type(tensor.dtype)->safetensors_name, "\",\"shape\":[", shape, "],\"data_offsets\":[", first,
              ",", last, "]}");
}

std::string print_metadata(const TensorMetadata& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata)
    out += text(out.empty() ? "" : ",", JsonString::encode(key).str(), ":", JsonString::encode(value).str());
  return text("\"", kMetadataName, "\":{", out, "}");
}

}  // namespace

std::optional<int64_t> byte_length(ElementType dtype, std::span<const int64_t> shape) {
  int64_t length = find_element_type(dtype)->bytes;
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(length, size, &length)) return std::nullopt;
  return length;
}

Result<int64_t> safetensors_header_size(std::string_view start, int64_t file_size) {
  if (file_size < 8 || start.size() < 8)
    return bad_safetensors(Code::kMalformedFile, ModelText(), "the file is too short for a header");
  uint64_t size = 0;
  for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<unsigned char>(start[i]);
  const bool is_too_large = size > static_cast<uint64_t>(kMaxHeaderBytes);
  if (is_too_large && start.starts_with("PK\3\4"))
    return Diagnostic{.code = Code::kMalformedFile,
                      .message = "it is an archive, as torch.save writes, and no safetensors file",
                      .hint = "write it with safetensors.torch.save_file(module.state_dict(), PATH)"};
  if (start.size() > 8 && start[8] != '{' && size > static_cast<uint64_t>(file_size - 8))
    return Diagnostic{
        .code = Code::kMalformedFile,
        .message = "it is no safetensors file: it does not begin with a header",
        .hint = "name a file of tensors, such as one that `run --save` or safetensors.torch.save_file wrote"};
  if (is_too_large)
    return bad_safetensors(Code::kLimitExceeded, ModelText(),
                           text("its header has ", size, " bytes, the limit is ", kMaxHeaderBytes));
  if (size > static_cast<uint64_t>(file_size - 8))
    return bad_safetensors(Code::kMalformedFile, ModelText(),
                           text("its header has ", size, " bytes, the file only ", file_size));
  return static_cast<int64_t>(size);
}

Result<SafetensorsIndex> parse_safetensors(std::string_view start, int64_t file_size) {
  GP_TRY(const int64_t size, safetensors_header_size(start, file_size));
  const std::string_view rest = start.substr(8);
  if (static_cast<int64_t>(rest.size()) < size || size == 0 || rest.front() != '{')
    return bad_safetensors(Code::kMalformedFile, ModelText(), "its header is no JSON object");
  HeaderReader reader(rest.substr(0, static_cast<size_t>(size)));
  if (!reader.read()) return reader.problem();
  SafetensorsIndex index{.tensors = {}, .metadata = std::move(reader.metadata())};
  Diagnostics problems;
  for (Draft& draft : reader.drafts()) {
    const std::string wrong = place(draft, 8 + size, file_size - 8 - size);
    if (!wrong.empty()) problems.push_back(bad_safetensors(Code::kMalformedFile, draft.entry.name, wrong));
    index.tensors.push_back(std::move(draft.entry));
  }
  if (!problems.empty()) return problems;
  std::ranges::stable_sort(index.tensors, {}, [](const TensorEntry& t) { return std::pair(t.offset, t.length); });
  problems = check_cover(index.tensors, 8 + size, file_size);
  if (!problems.empty()) return problems;
  return index;
}

Result<std::string> print_safetensors_header(std::span<const TensorEntry> tensors, const TensorMetadata& metadata) {
  std::string header = "{";
  if (!metadata.empty()) header += print_metadata(metadata);
  int64_t end = 0;
  for (const TensorEntry& tensor : tensors) {
    const int64_t first = end;
    if (__builtin_add_overflow(end, byte_length(tensor.dtype, tensor.shape).value(), &end))
      return bad_safetensors(Code::kLimitExceeded, tensor.name, "the tensors have more than 2^63 bytes together");
    header += (header == "{" ? "" : ",") + print_entry(tensor, first, end);
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(header.size()) > kMaxHeaderBytes)
    return bad_safetensors(Code::kLimitExceeded, ModelText(), text("the header would have ", header.size(), " bytes"));
  std::string size;
  for (size_t i = 0; i < 8; ++i) size += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return size + header;
}

}  // namespace graphpipe::wire
