#include "wire/weight_parts.h"

#include <filesystem>
#include <map>
#include <set>

#include "support/mapped_file.h"
#include "wire/data_table.h"
#include "wire/manifest.h"

namespace graphpipe::wire {
namespace {

constexpr int64_t kMaxFiles = 1'000'000;
constexpr std::string_view kDataFolder = "weights/";

bool parse_part(const std::vector<std::string_view>& words, WeightPart& part) {
  if (words.size() != 6 || words[0] != "part") return false;
  const ElementTypeInfo* type = find_element_type(&ElementTypeInfo::long_name, words[3]);
  const std::optional<std::vector<int64_t>> shape = parse_shape(words[4]);
  const std::optional<std::string> name = decoded_name(words[5]);
  TensorEntry& tensor = part.tensor;
  if (!type || !shape || !name || !graphpipe::read_number(words[1], part.file) ||
      !graphpipe::read_number(words[2], tensor.offset))
    return false;
  const std::optional<int64_t> length = byte_length(type->type, *shape);
  if (part.file < 0 || part.file >= kMaxFiles || !length) return false;
  tensor.name = ModelText(*name);
  tensor.dtype = type->type;
  tensor.shape = *shape;
  tensor.length = *length;
  return tensor.offset >= 0 && tensor.offset % type->bytes == 0;
}

Diagnostic bad_parts(const std::string& path, std::string message) {
  return {.code = Code::kMalformedFile,
          .origin = ModelText(path),
          .message = std::move(message),
          .hint = "generate the folder again, or put the original file back"};
}

Result<int64_t> size_of(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (!error) return static_cast<int64_t>(size);
  return Diagnostic{.code = Code::kUnreadableFile,
                    .origin = ModelText(path),
                    .message = "the file of weights cannot be read: " + error.message(),
                    .hint = "copy the whole folder, or generate it again"};
}

}  // namespace

std::string weight_data_file(int64_t number) { return text(kDataFolder, number, ".bin"); }

bool holds_weights(std::string_view path) {
  return path == kWeightsFile || path == kWeightPartsFile || path.starts_with(kDataFolder);
}

std::string print_weight_parts(std::span<const WeightPart> parts) {
  std::string out = text(kWeightPartsHeader, "\n");
  for (const auto& [file, tensor] : parts)
    out += text("part ", file, " ", tensor.offset, " ", element_name(tensor.dtype), " ", shape_text(tensor.shape), " ",
                encoded_name(tensor.name.raw()), "\n");
  return out;
}

std::optional<std::vector<WeightPart>> parse_weight_parts(std::string_view text) {
  std::vector<std::string_view> lines = split(text, "\n");
  if (lines.size() < 2 || lines[0] != kWeightPartsHeader || !lines.back().empty()) return std::nullopt;
  lines.pop_back();
  std::vector<WeightPart> parts;
  std::set<ModelText> names;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string_view> words = split(lines[i], " ");
    if (!parse_part(words, parts.emplace_back()) || !names.insert(parts.back().tensor.name).second) return std::nullopt;
  }
  return parts;
}

Result<std::vector<WeightPart>> read_weight_parts(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kWeightPartsFile);
  if (!std::filesystem::exists(path)) return std::vector<WeightPart>{};
  GP_TRY(const MappedFile file, MappedFile::open(path));
  std::optional<std::vector<WeightPart>> parts = parse_weight_parts(file.text());
  if (!parts) return bad_parts(path, "it is no table of weights");
  std::map<int64_t, int64_t> sizes;
  for (const auto& [number, tensor] : *parts) {
    const std::string data = folder + "/" + weight_data_file(number);
    if (!sizes.contains(number)) {
      GP_TRY(sizes[number], size_of(data));
    }
    if (tensor.length <= sizes[number] && tensor.offset <= sizes[number] - tensor.length) continue;
    return bad_parts(data, text("the weights ", quoted(tensor.name), " are ", tensor.length, " bytes from byte ",
                                tensor.offset, " on, and the file has ", sizes[number]));
  }
  return std::move(*parts);
}

}  // namespace graphpipe::wire
