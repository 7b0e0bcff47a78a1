#include "driver/pipeline/parameter_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "frontend/external_data.h"
#include "support/check.h"
#include "support/descriptor.h"
#include "wire/element_bytes.h"
#include "wire/packed_elements.h"
#include "wire/scan_numbers.h"

namespace graphpipe::driver {
namespace {

constexpr int64_t kPiece = 1 << 20;
/// In the metadata of the weights that a compilation writes; trained ones do not have it.
constexpr const char* kGenerator = "generator";

Diagnostic unreadable(const ir::FileRange& range) {
  return {.code = Code::kUnreadableFile,
          .origin = ModelText(range.path),
          .message = "the weights cannot be read, or the file has become shorter",
          .hint = "check that the file is the one that the plan was made from"};
}

}  // namespace

Status send_file_range(const ir::FileRange& range, const WeightOrigin& origin, const files::ByteSink& sink) {
  GP_TRY(const int descriptor, frontend::open_weight_file(range.path, origin.model, origin.trusted_root));
  std::string piece(static_cast<size_t>(std::min(kPiece, std::max<int64_t>(range.length, 1))), '\0');
  Status status = Ok{};
  for (int64_t done = 0; status.ok() && done < range.length;) {
    const size_t wanted = static_cast<size_t>(std::min(range.length - done, kPiece));
    const ssize_t count = pread(descriptor, piece.data(), wanted, range.offset + done);
    if (count <= 0) {
      status = unreadable(range);
    } else {
      status = sink(std::string_view(piece.data(), static_cast<size_t>(count)));
      done += count;
    }
  }
  close(descriptor);
  return status;
}

namespace {

/// Like send_file_range, for elements smaller than a byte: the file packs them, and the sink gets one byte for each.
Status send_packed_range(const ir::FileRange& range, const ir::TensorType& type, const WeightOrigin& origin,
                         const files::ByteSink& sink) {
  const int64_t per_byte = wire::find_element_type(type.dtype)->packed;
  int64_t left = ir::byte_size(type, Samples(1)).count;
  return send_file_range(range, origin, [&](std::string_view piece) -> Status {
    const int64_t count = std::min(left, per_byte * static_cast<int64_t>(piece.size()));
    const auto elements = wire::unpack_elements(type.dtype, std::as_bytes(std::span(piece)), count);
    GP_CHECK(elements.has_value());  // verify_graph has checked the length
    left -= count;
    return sink(std::string_view(reinterpret_cast<const char*>(elements->data()), elements->size()));
  });
}

/// Like send_file_range, for a matrix of which the file holds the transpose: some of the file's columns at a time,
/// which are rows of the matrix.
Status send_transposed_range(const ir::FileRange& range, const ir::TensorType& type, const WeightOrigin& origin,
                             const files::ByteSink& sink) {
  constexpr int64_t kBlock = 16 << 20;
  const int64_t size = ir::bytes_per_element(type.dtype);
  const int64_t columns = type.shape[0].at(Samples(1)), rows = type.shape[1].at(Samples(1));  // of the file's
  GP_TRY(const int number, frontend::open_weight_file(range.path, origin.model, origin.trusted_root));
  const Descriptor file(number);
  const int64_t at_once = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, rows * size));
  for (int64_t first = 0; first < columns && rows > 0; first += at_once) {
    const int64_t width = std::min(at_once, columns - first) * size;
    std::string block(static_cast<size_t>(rows * width), '\0');
    for (int64_t row = 0; row < rows; ++row)
      if (pread(file.get(), &block[static_cast<size_t>(row * width)], static_cast<size_t>(width),
                range.offset + (row * columns + first) * size) != width)
        return unreadable(range);
    GP_TRY_VOID(sink(wire::transposed_elements(block, static_cast<size_t>(rows), static_cast<size_t>(size))));
  }
  return Ok{};
}

Status send_filled(const ir::TensorType& type, double value, const files::ByteSink& sink) {
  const std::string element = wire::element_bytes(type.dtype, value);
  int64_t left = ir::byte_size(type, Samples(1)).count;
  std::string piece;
  while (static_cast<int64_t>(piece.size()) < std::min(left, kPiece)) piece += element;
  while (left > 0) {
    const int64_t count = std::min<int64_t>(left, static_cast<int64_t>(piece.size()));
    GP_TRY_VOID(sink(std::string_view(piece).substr(0, static_cast<size_t>(count))));
    left -= count;
  }
  return Ok{};
}

}  // namespace

Status send_parameter_bytes(const ir::Graph& graph, ir::ParamId id, const WeightOrigin& origin,
                            const files::ByteSink& sink) {
  const ir::Param& param = graph.param(id);
  const ir::TensorType& type = graph.value(param.value).type;
  if (const auto* range = std::get_if<ir::FileRange>(&param.data)) {
    if (range->is_transposed) return send_transposed_range(*range, type, origin, sink);
    const bool is_packed = wire::find_element_type(type.dtype)->packed > 1;
    return is_packed ? send_packed_range(*range, type, origin, sink) : send_file_range(*range, origin, sink);
  }
  if (const auto* data = std::get_if<ir::InlineData>(&param.data)) return sink(data->bytes);
  return send_filled(type, std::get<ir::FilledData>(param.data).value, sink);
}

namespace {

/// Takes the bytes of a tensor in pieces of any size and remembers its first number that is not finite.
class FiniteScan {
 public:
  explicit FiniteScan(ir::DType dtype) : type_(dtype) {}

  Status take(std::string_view bytes) {
    const auto size = static_cast<size_t>(wire::element_size(type_));
    while (!begun_.empty() && !bytes.empty() && begun_.size() < size) {
      begun_ += bytes.front();
      bytes.remove_prefix(1);
    }
    if (begun_.size() == size) {
      look_at(begun_);
      begun_.clear();
    }
    const size_t whole = bytes.size() / size * size;
    look_at(bytes.substr(0, whole));
    begun_ += bytes.substr(whole);
    return Ok{};
  }
  /// "element [3,5] is infinite"; nothing where all were finite.
  std::optional<std::string> found(std::span<const int64_t> dims) const {
    if (!found_) return std::nullopt;
    return text("element ", wire::index_text(dims, *found_), " is ", name_);
  }

 private:
  void look_at(std::string_view whole) {
    if (found_) return;
    const auto elements = std::as_bytes(std::span(whole));
    if (const auto at = wire::first_not_finite(type_, elements)) {
      found_ = seen_ + *at;
      name_ = wire::not_finite_name(type_, elements, *at);
    }
    seen_ += whole.size() / static_cast<size_t>(wire::element_size(type_));
  }

  wire::ElementType type_;
  std::string begun_;  // an element whose other bytes come with the next piece
  size_t seen_ = 0;
  std::optional<size_t> found_;
  std::string name_;
};

}  // namespace

Status check_finite_weights(const ir::Graph& graph, const WeightOrigin& origin) {
  Diagnostics problems;
  for (const ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    const ir::TensorType& type = graph.value(param.value).type;
    if (param.kind == ir::ParamKind::kConstant || !ir::is_floating(type.dtype)) continue;
    std::optional<std::string> found;
    if (const auto* filled = std::get_if<ir::FilledData>(&param.data)) {
      // A model of a few bytes may fill terabytes.
      if (!std::isfinite(filled->value)) found = "its elements are infinite or not a number";
    } else {
      FiniteScan scan(type.dtype);
      GP_TRY_VOID(send_parameter_bytes(graph, id, origin, [&](std::string_view bytes) { return scan.take(bytes); }));
      std::vector<int64_t> dims;
      for (const ir::Dim dim : type.shape) dims.push_back(dim.at(Samples(1)));
      found = scan.found(dims);
    }
    if (!found || problems.size() == kMaxProblems) continue;
    problems.push_back({.code = Code::kBadModel,
                        .origin = param.name,
                        .message = *found + ": no training recovers from such weights",
                        .hint = "export the model from weights of an earlier step"});
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

files::TensorToWrite tensor_of_parameter(const ir::Graph& graph, ir::ParamId id) {
  const ir::TensorType& type = graph.value(graph.param(id).value).type;
  files::TensorToWrite tensor{.name = graph.param(id).name, .dtype = type.dtype, .shape = {}};
  for (const ir::Dim dim : type.shape) tensor.shape.push_back(dim.at(Samples(1)));
  return tensor;
}

Status write_weights(const std::string& path, const ir::Graph& graph, const WeightOrigin& origin,
                     const std::set<ir::ParamId>& left_out) {
  std::vector<files::TensorToWrite> tensors;
  std::vector<ir::ParamId> params;
  for (const ir::ParamId id : graph.param_ids()) {
    if (left_out.contains(id)) continue;
    tensors.push_back(tensor_of_parameter(graph, id));
    params.push_back(id);
  }
  const auto source = [&](size_t index, const files::ByteSink& sink) {
    return send_parameter_bytes(graph, params[index], origin, sink);
  };
  return files::write_safetensors(path, tensors, source, {{ModelText(kGenerator), ModelText("graphpipe compile")}});
}

bool are_written_weights(const std::string& path) {
  const Result<files::SafetensorsIndex> index = files::read_safetensors(path);
  return index.ok() &&
         std::ranges::any_of(index->metadata, [](const auto& entry) { return entry.first.raw() == kGenerator; });
}

}  // namespace graphpipe::driver
