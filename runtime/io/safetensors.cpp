#include "runtime/io/safetensors.h"

#include <ATen/ops/from_blob.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/error.h"
#include "runtime/io/output_file.h"
#include "runtime/tensors.h"
#include "wire/manifest.h"
#include "wire/safetensors.h"
#include "wire/weight_parts.h"

namespace graphpipe::runtime {
namespace {

wire::TensorEntry entry_of(const NamedTensor& named) {
  const std::optional<ElementType> element = element_type(named.tensor.scalar_type());
  if (!element)
    fail(Code::kUnsupportedType,
         text("safetensors cannot hold elements of type ", c10::toString(named.tensor.scalar_type())),
         "leave this tensor out");
  return {.name = ModelText(named.name), .dtype = *element, .shape = named.tensor.sizes().vec()};
}

}  // namespace

std::map<std::string, TensorPlace> read_safetensors_header(std::span<const std::byte> file, const std::string& name) {
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  auto index = wire::parse_safetensors(content, static_cast<int64_t>(file.size()));
  if (!index.ok()) {
    const Diagnostic& first = index.problems().front();
    const std::string who = first.origin.empty() ? "" : text("tensor ", quoted(first.origin), " ");
    fail(first.code, text(quoted(ModelText(name)), ": ", who, first.message), first.hint);
  }
  std::map<std::string, TensorPlace> places;
  for (wire::TensorEntry& entry : index->tensors)
    places[entry.name.raw()] = {.type = scalar_type(entry.dtype),
                                .dims = std::move(entry.shape),
                                .offset = static_cast<size_t>(entry.offset),
                                .bytes = static_cast<size_t>(entry.length)};
  return places;
}

Safetensors::Safetensors(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const MappedFile& file = files_.emplace_back(value_or_throw(MappedFile::open(path)));
    for (auto& [name, place] : read_safetensors_header(file.bytes(), path)) {
      place.file = files_.size() - 1;
      tensors_.emplace(name, std::move(place));
    }
  }
}

Safetensors Safetensors::of_folder(const std::string& folder) {
  Safetensors weights(folder + "/" + std::string(wire::kWeightsFile));
  std::map<int64_t, size_t> opened;
  for (const auto& [number, tensor] : value_or_throw(wire::read_weight_parts(folder))) {
    const std::string path = folder + "/" + wire::weight_data_file(number);
    const auto [known, is_new] = opened.emplace(number, weights.files_.size());
    if (is_new) weights.files_.push_back(value_or_throw(MappedFile::open(path)));
    std::error_code error;
    weights.tensors_.emplace(tensor.name.raw(),
                             TensorPlace{.type = scalar_type(tensor.dtype),
                                         .dims = tensor.shape,
                                         .offset = static_cast<size_t>(tensor.offset),
                                         .bytes = static_cast<size_t>(tensor.length),
                                         .file = known->second,
                                         .is_shared = std::filesystem::hard_link_count(path, error) != 1});
  }
  return weights;
}

const TensorPlace* Safetensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

at::Tensor Safetensors::view(const TensorPlace& place) const {
  return at::from_blob(const_cast<std::byte*>(files_[place.file].bytes().data()) + place.offset, place.dims,
                       at::TensorOptions().dtype(place.type));
}

void write_safetensors(const std::function<void(std::span<const std::byte>)>& write,
                       const std::vector<NamedTensor>& tensors) {
  std::vector<wire::TensorEntry> entries;
  for (const NamedTensor& named : tensors) entries.push_back(entry_of(named));
  const std::string header = value_or_throw(wire::print_safetensors_header(entries));
  write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor dense = tensor.contiguous();
    write(bytes_in(dense));
  }
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  OutputFile file(path);
  write_safetensors([&](std::span<const std::byte> bytes) { file.write(bytes); }, tensors);
  file.keep();
}

}  // namespace graphpipe::runtime
