#include "frontend/tensor_source.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "wire/element_bytes.h"
#include "wire/packed_elements.h"

namespace graphpipe::frontend {
namespace {

/// Unpacks sub-byte weights stored in the stripped file, to one element per byte.
Result<SourcedTensor> unpacked(const Tensor& tensor, SourcedTensor result, int64_t count, const ModelText& name) {
  const std::string& bytes = tensor.data.bytes;
  const auto elements =
      wire::unpack_elements(result.type.dtype, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, count);
  if (!elements)
    return tensor_problem(Code::kBadModel, name, text("a tensor of ", count, " elements with ", bytes.size(), " bytes"),
                          "export the model again");
  result.data = ir::InlineData{std::string(reinterpret_cast<const char*>(elements->data()), elements->size())};
  return result;
}

/// The elements of a tensor that the file holds as those of its transpose. Needs: dims that fit the data.
void turn(const Tensor& tensor, SourcedTensor& sourced) {
  const auto rows = static_cast<size_t>(tensor.dims[1]);  // of the file's
  const auto size = static_cast<size_t>(ir::bytes_per_element(sourced.type.dtype));
  if (auto* held = std::get_if<ir::InlineData>(&sourced.data))
    held->bytes = wire::transposed_elements(held->bytes, rows, size);
  else std::get<ir::FileRange>(sourced.data).is_transposed = true;
  if (sourced.bytes) sourced.bytes = wire::transposed_elements(*sourced.bytes, rows, size);
}

/// Whether each byte of the range is the one `period` bytes before it.
bool is_periodic(int file, const ir::FileRange& range, int64_t period) {
  constexpr int64_t kChunk = 1 << 20;
  std::string before(kChunk, '\0'), after(kChunk, '\0');
  for (int64_t at = period; at < range.length; at += kChunk) {
    const int64_t count = std::min(kChunk, range.length - at);
    const auto reads = [&](std::string& into, int64_t offset) {
      return pread(file, into.data(), static_cast<size_t>(count), range.offset + offset) == count;
    };
    if (!reads(before, at - period) || !reads(after, at)) return false;
    if (std::string_view(before).substr(0, static_cast<size_t>(count)) !=
        std::string_view(after).substr(0, static_cast<size_t>(count)))
      return false;
  }
  return true;
}

}  // namespace

Result<SourcedTensor> TensorSource::locate(const Tensor& tensor, const ModelText& name) {
  GP_TRY(SourcedTensor sourced, locate_dense(tensor, name));
  if (tensor.layout == Tensor::Layout::kTransposed) turn(tensor, sourced);
  return sourced;
}

Result<SourcedTensor> TensorSource::locate_dense(const Tensor& tensor, const ModelText& name) {
  const std::optional<ir::DType> dtype = dtype_of_onnx(tensor.onnx_type);
  if (!dtype)
    return tensor_problem(Code::kUnsupportedType, name,
                          text("a tensor of element type ", onnx_type_name(tensor.onnx_type)),
                          "use numbers or bool: encode strings as indices before the model");
  SourcedTensor result;
  result.type.dtype = *dtype;
  for (int64_t dim : tensor.dims) result.type.shape.push_back(ir::Dim::fixed(dim));
  const std::optional<ir::Dim> count = ir::element_count(result.type.shape);
  if (!count)
    return tensor_problem(Code::kLimitExceeded, name, "a tensor of more than 2^48 elements", "use smaller tensors");
  const int64_t needed = wire::stored_bytes(*dtype, count->factor);
  weight_bytes_ += needed;
  if (weight_bytes_ > weight_limit_)
    return tensor_problem(Code::kLimitExceeded, name, text("the weights have more than ", weight_limit_, " bytes"),
                          "raise the limit if you trust the file");
  if (tensor.layout == Tensor::Layout::kZeros) {
    result.data = ir::FilledData{0};
    return result;
  }
  const bool is_packed = wire::find_element_type(*dtype)->packed > 1;
  if (tensor.data.slot < 0) {
    if (is_packed) return unpacked(tensor, std::move(result), count->factor, name);
    result.data = ir::InlineData{tensor.data.bytes};
    result.bytes = tensor.data.bytes;
    return result;
  }
  const Slot& slot = slots_[static_cast<size_t>(tensor.data.slot)];
  if (const auto* in_file = std::get_if<InlineSlot>(&slot)) {
    if (in_file->length != needed)
      return tensor_problem(Code::kBadModel, name,
                            text("a tensor of ", count->factor, " elements of ", onnx_type_name(tensor.onnx_type),
                                 " with ", in_file->length, " bytes of data"),
                            "export the model again");
    result.data = ir::FileRange{model_path_, in_file->offset, in_file->length};
    return result;
  }
  const auto& outside = std::get<ExternalSlot>(slot);
  GP_TRY(const ir::FileRange range, external_.locate(outside, needed, name));
  result.data = range;
  const int64_t kept = ir::is_floating(*dtype) ? kKeptFloatBytes : kKeptIntegerBytes;
  if (needed <= kept && !is_packed) {
    GP_TRY(result.bytes, external_.read(outside, range, name));
    if (!ir::is_floating(*dtype)) outside_constants_.push_back(range);
  }
  return result;
}

std::optional<std::string> TensorSource::elements_of(const Tensor& tensor) {
  constexpr int64_t kMaxBytes = int64_t{256} << 20;
  Result<SourcedTensor> sourced = locate(tensor, ModelText(tensor.name));  // problems come where it is bound
  if (!sourced) return std::nullopt;
  const int64_t size = ir::byte_size(sourced->type, Samples(1)).count;
  if (size > kMaxBytes) return std::nullopt;
  if (std::holds_alternative<ir::FilledData>(sourced->data)) return std::string(static_cast<size_t>(size), '\0');
  if (auto* held = std::get_if<ir::InlineData>(&sourced->data)) return std::move(held->bytes);
  const auto& range = std::get<ir::FileRange>(sourced->data);
  const Result<int> file = open_weight_file(range.path, model_path_, external_.trusted_root());
  if (!file.ok()) return std::nullopt;
  std::string bytes(static_cast<size_t>(range.length), '\0');
  const bool is_read = pread(*file, bytes.data(), bytes.size(), range.offset) == range.length;
  close(*file);
  if (!is_read || range.length != size) return std::nullopt;
  if (!range.is_transposed) return bytes;
  return wire::transposed_elements(bytes, static_cast<size_t>(tensor.dims[1]),
                                   static_cast<size_t>(ir::bytes_per_element(sourced->type.dtype)));
}

bool TensorSource::repeats(const ir::DataSource& data, int64_t parts) const {
  if (std::holds_alternative<ir::FilledData>(data)) return true;
  if (const auto* held = std::get_if<ir::InlineData>(&data)) {
    const std::string_view bytes = held->bytes;
    const size_t part = bytes.size() / static_cast<size_t>(parts);
    return bytes.size() % static_cast<size_t>(parts) == 0 && bytes.substr(part) == bytes.substr(0, bytes.size() - part);
  }
  const auto& range = std::get<ir::FileRange>(data);
  if (range.is_transposed || range.length % parts != 0) return false;
  const Result<int> file = open_weight_file(range.path, model_path_, external_.trusted_root());
  if (!file.ok()) return false;
  const bool same = is_periodic(*file, range, range.length / parts);
  close(*file);
  return same;
}

}  // namespace graphpipe::frontend
