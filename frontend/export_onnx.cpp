#include "frontend/export_onnx.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "frontend/external_data.h"
#include "frontend/model.h"
#include "support/mapped_file.h"
#include "wire/packed_elements.h"

namespace graphpipe::frontend {
namespace {

namespace onnx = graphpipe_onnx;

constexpr size_t kMaxFileBytes = std::numeric_limits<int32_t>::max();

Diagnostic about(const std::string& name, Code code, std::string message, std::string hint) {
  return Diagnostic{.code = code, .origin = ModelText(name), .message = std::move(message), .hint = std::move(hint)};
}

Diagnostic too_large(const std::string& name) {
  return about(name, Code::kLimitExceeded,
               "with its weights inside, the model is larger than the 2 GiB of an ONNX file",
               "take weights alone: -o FILE.safetensors");
}

bool fits(const onnx::TensorProto& tensor, const NewTensor& with) {
  return dtype_of_onnx(tensor.data_type()) == with.dtype &&
         std::vector<int64_t>(tensor.dims().begin(), tensor.dims().end()) == with.dims;
}

Status replace_elements(onnx::TensorProto& tensor, const std::string& name, const NewTensor& with) {
  if (!fits(tensor, with))
    return about(name, Code::kBadParameter, "the model's tensor has another type or shape than its new value",
                 "export weights that a run of this model saved");
  tensor.clear_float_data();
  tensor.clear_double_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_uint64_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
  tensor.set_raw_data(std::string(with.bytes));
  return Ok{};
}

ExternalSlot slot_of(const onnx::TensorProto& tensor) {
  ExternalSlot slot;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
    if (entry.key() == "location") slot.location = entry.value();
    if (entry.key() == "offset") slot.offset = entry.value(), slot.has_offset = true;
    if (entry.key() == "length") slot.length = entry.value(), slot.has_length = true;
  }
  return slot;
}

/// Moves external data into the file: the new file has none.
class Inliner {
 public:
  Inliner(const std::string& path, const std::string& trusted_root) : external_(path, trusted_root) {}

  Status graph(onnx::GraphProto& graph) {
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) GP_TRY_VOID(one(tensor));
    for (onnx::SparseTensorProto& sparse : *graph.mutable_sparse_initializer()) {
      GP_TRY_VOID(one(*sparse.mutable_values()));
      GP_TRY_VOID(one(*sparse.mutable_indices()));
    }
    return nodes(*graph.mutable_node());
  }

  Status nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
    for (onnx::NodeProto& node : nodes)
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_t()) GP_TRY_VOID(one(*attribute.mutable_t()));
        for (onnx::TensorProto& tensor : *attribute.mutable_tensors()) GP_TRY_VOID(one(tensor));
        if (attribute.has_g()) GP_TRY_VOID(graph(*attribute.mutable_g()));
        for (onnx::GraphProto& body : *attribute.mutable_graphs()) GP_TRY_VOID(graph(body));
      }
    return Ok{};
  }

 private:
  Status one(onnx::TensorProto& tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return Ok{};
    GP_TRY(const int64_t needed, bytes_of(tensor));
    bytes_ += needed;
    if (bytes_ > static_cast<int64_t>(kMaxFileBytes)) return too_large(tensor.name());
    const ExternalSlot slot = slot_of(tensor);
    GP_TRY(const ir::FileRange range, external_.locate(slot, needed, ModelText(tensor.name())));
    GP_TRY(std::string elements, external_.read(slot, range, ModelText(tensor.name())));
    tensor.set_raw_data(std::move(elements));
    tensor.clear_external_data();
    tensor.clear_data_location();
    return Ok{};
  }

  static Result<int64_t> bytes_of(const onnx::TensorProto& tensor) {
    const std::optional<ir::DType> dtype = dtype_of_onnx(tensor.data_type());
    ir::Shape shape;
    for (const int64_t dim : tensor.dims()) shape.push_back(ir::Dim::fixed(dim));
    const std::optional<ir::Dim> count = ir::element_count(shape);
    if (dtype && count && std::ranges::all_of(tensor.dims(), [](int64_t dim) { return dim >= 0; }))
      return wire::stored_bytes(*dtype, count->factor);
    return about(tensor.name(), Code::kUnsupportedType, "the model does not say how many elements lie beside it",
                 "take weights alone: -o FILE.safetensors");
  }

  ExternalData external_;
  int64_t bytes_ = 0;
};

class Replacement {
 public:
  Replacement(const std::map<std::string, NewTensor>& tensors, std::set<std::string>& replaced)
      : tensors_(tensors), replaced_(replaced) {}

  Status initializers(onnx::GraphProto& graph) {
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) GP_TRY_VOID(one(tensor, tensor.name()));
    return Ok{};
  }

  Status constants(onnx::GraphProto& graph) {
    for (onnx::NodeProto& node : *graph.mutable_node()) {
      if (node.op_type() != "Constant" || node.output_size() != 1) continue;
      for (onnx::AttributeProto& attribute : *node.mutable_attribute())
        if (attribute.name() == "value" && attribute.has_t()) GP_TRY_VOID(one(*attribute.mutable_t(), node.output(0)));
    }
    return Ok{};
  }

 private:
  Status one(onnx::TensorProto& tensor, const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return Ok{};
    replaced_.insert(name);
    return replace_elements(tensor, name, found->second);
  }

  const std::map<std::string, NewTensor>& tensors_;
  std::set<std::string>& replaced_;
};

}  // namespace

Result<std::string> export_onnx(const std::string& path, const std::string& trusted_root,
                                const std::map<std::string, NewTensor>& tensors, std::set<std::string>& replaced) {
  GP_TRY(const MappedFile file, MappedFile::open(path, kMaxFileBytes));
  onnx::ModelProto model;
  if (!model.ParseFromArray(file.bytes().data(), static_cast<int>(file.bytes().size())))
    return about(path, Code::kMalformedFile, "the file is no ONNX model", "give the model that the plan was made from");
  Replacement replacement(tensors, replaced);
  GP_TRY_VOID(replacement.initializers(*model.mutable_graph()));
  GP_TRY_VOID(replacement.constants(*model.mutable_graph()));
  Inliner inliner(path, trusted_root);
  GP_TRY_VOID(inliner.graph(*model.mutable_graph()));
  for (onnx::FunctionProto& function : *model.mutable_functions()) GP_TRY_VOID(inliner.nodes(*function.mutable_node()));
  if (model.ByteSizeLong() > kMaxFileBytes) return too_large(path);
  return model.SerializeAsString();
}

}  // namespace graphpipe::frontend
