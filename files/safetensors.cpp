#include "files/safetensors.h"

#include <algorithm>
#include <functional>

#include "files/proto_json.h"
#include "files/text_file.h"
#include "support/output_file.h"

namespace graphpipe::files {
namespace {

Status write_tensor(OutputFile& file, const TensorToWrite& tensor, size_t index, const TensorSource& source) {
  const int64_t length = *wire::byte_length(tensor.dtype, tensor.shape);
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

Result<SafetensorsIndex> read_safetensors(const std::string& path) {
  // The size of the header first: the data behind it may be of any size.
  GP_TRY(const FileStart head, read_start(path, 8));
  const Result<int64_t> size = wire::safetensors_header_size(head.bytes, head.file_size);
  if (!size.ok()) return with_origin(size.problems(), path);
  GP_TRY(const FileStart start, read_start(path, 8 + *size));
  Result<SafetensorsIndex> index = wire::parse_safetensors(start.bytes, start.file_size);
  if (!index.ok()) return with_origin(index.problems(), path);
  return index;
}

bool can_name_tensor(std::string_view name) {
  for (size_t i = 0; i < name.size();) {
    const size_t length = utf8_length(name.substr(i));
    if (length == 0) return false;
    i += length;
  }
  return name != wire::kMetadataName;
}

Status check_tensors(const std::vector<TensorToWrite>& tensors) {
  Diagnostics problems;
  std::vector<std::string> names;
  const auto report = [&](const ModelText& name, Code code, std::string_view what, std::string_view hint) {
    problems.push_back({.code = code, .origin = name, .message = std::string(what), .hint = std::string(hint)});
  };
  for (const TensorToWrite& tensor : tensors) {
    names.emplace_back(tensor.name.raw());
    if (!can_name_tensor(tensor.name.raw()))
      report(tensor.name, Code::kBadModel, "a safetensors file cannot hold a tensor of this name",
             "rename the parameter");
    if (!wire::byte_length(tensor.dtype, tensor.shape))
      report(tensor.name, Code::kLimitExceeded, "the tensor has more than 2^63 bytes", "check its shape");
  }
  std::ranges::sort(names);
  for (size_t i = 1; i < names.size(); ++i)
    if (names[i] == names[i - 1])
      report(ModelText(names[i]), Code::kBadModel, "two tensors have this name", "rename one of the parameters");
  if (!problems.empty()) return problems;
  return Ok{};
}

Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors, const TensorSource& source,
                         const TensorMetadata& metadata) {
  GP_TRY_VOID(check_tensors(tensors));
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return ir::bytes_per_element(tensors[i].dtype); });
  std::vector<TensorEntry> entries;
  for (size_t i : order)
    entries.push_back({.name = tensors[i].name, .dtype = tensors[i].dtype, .shape = tensors[i].shape});
  GP_TRY(const std::string header, wire::print_safetensors_header(entries, metadata));
  Result<OutputFile> file = OutputFile::create(path);
  if (!file.ok()) return file.problems();
  GP_TRY_VOID(file->write(header));
  for (size_t index : order) GP_TRY_VOID(write_tensor(*file, tensors[index], index, source));
  return file->commit();
}

}  // namespace graphpipe::files
