#include "frontend/export_onnx.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "frontend/external_data.h"
#include "frontend/model.h"
#include "frontend/parameters.h"
#include "frontend/read_model.h"
#include "frontend/restore_parameters.h"
#include "frontend/transposed_copies.h"
#include "frontend/wire_scan.h"
#include "support/check.h"
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

void write_node(const OnnxNode& from, onnx::NodeProto& node) {
  node.set_name(from.name);
  node.set_op_type(from.op);
  for (const Attribute& attribute : from.attributes) {
    onnx::AttributeProto& written = *node.add_attribute();
    written.set_name(attribute.name);
    if (attribute.kind == Attribute::Kind::kInts) {
      written.set_type(onnx::AttributeProto::INTS);
      written.mutable_ints()->Add(attribute.ints.begin(), attribute.ints.end());
    } else if (attribute.kind == Attribute::Kind::kInt) {
      written.set_type(onnx::AttributeProto::INT);
      written.set_i(attribute.i);
    } else if (attribute.kind == Attribute::Kind::kFloat) {
      written.set_type(onnx::AttributeProto::FLOAT);
      written.set_f(static_cast<float>(attribute.f));
    }
  }
}

void write_nodes(const GraphBody& body, const Restoration& restored, onnx::GraphProto& graph) {
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    onnx::NodeProto& node = *nodes.Add();
    if (const auto place = restored.nodes[i]) node.Swap(graph.mutable_node(static_cast<int>(*place)));
    else write_node(body.nodes[i], node);
    node.mutable_input()->Assign(body.nodes[i].inputs.begin(), body.nodes[i].inputs.end());
    node.mutable_output()->Assign(body.nodes[i].outputs.begin(), body.nodes[i].outputs.end());
  }
  graph.mutable_node()->Swap(&nodes);
}

/// Gives the graph the parameters that the import of the file restores: those with new elements as tensors, whose names
/// are returned and which have none yet; others, which no output that trains needs, from the file's own.
class ParameterRestorer {
 public:
  ParameterRestorer(onnx::GraphProto& graph, const std::map<std::string, NewTensor>& tensors)
      : graph_(graph), tensors_(tensors) {}

  Result<std::set<std::string>> restore(const std::string& path, const std::string& trusted_root, std::string_view file,
                                        const ParameterRules& rules) {
    GP_TRY(const WireScan scan, scan_wire(file, Limits{}));
    onnx::ModelProto stripped;
    if (!stripped.ParseFromString(scan.stripped)) return std::set<std::string>();
    GP_TRY(Model model, read_model(stripped, scan.slots.size()));
    TensorSource source(path, scan.slots, trusted_root, std::numeric_limits<int64_t>::max());
    const WeightFiles files{path, trusted_root};
    const TensorReaders readers{
        [&](const Tensor& matrix, const Tensor& copy) { return may_be_transposes(matrix, copy, source, files); },
        [&](const Tensor& tensor) { return source.elements_of(tensor); }};
    const Restoration restored = restore_parameters(model.graph, read_signature(model.graph.metadata), rules, readers);
    if (!restored.has_changed()) return std::set<std::string>();
    write_nodes(model.graph, restored, graph_);
    write_tensors(model.graph, restored);
    return std::move(added_);
  }

 private:
  void write_tensors(const GraphBody& body, const Restoration& restored) {
    std::map<std::string, onnx::TensorProto> before;
    for (onnx::TensorProto& tensor : *graph_.mutable_initializer()) before[tensor.name()].Swap(&tensor);
    graph_.clear_initializer();
    for (const Tensor& tensor : body.initializers) {
      onnx::TensorProto& written = *graph_.add_initializer();
      if (const auto found = before.find(tensor.name); found != before.end()) {
        written.CopyFrom(found->second);
        continue;
      }
      written.set_name(tensor.name);
      written.set_data_type(tensor.onnx_type);
      written.mutable_dims()->Add(tensor.dims.begin(), tensor.dims.end());
      const auto dtype = dtype_of_onnx(tensor.onnx_type);
      if (!dtype || !ir::is_floating(*dtype)) {
        written.set_raw_data(tensor.data.bytes);  // axes, sizes
      } else if (tensors_.contains(tensor.name)) {
        added_.insert(tensor.name);
      } else if (!tensor.data.bytes.empty() && !restored.sources.contains(tensor.name)) {
        written.set_raw_data(tensor.data.bytes);  // computed back from another
      } else if (const auto source = restored.sources.find(tensor.name); source == restored.sources.end()) {
        written.set_raw_data(std::string(static_cast<size_t>(tensor.dims[0] * ir::bytes_per_element(*dtype)), '\0'));
      } else {
        from_source(tensor, before.at(source->second.name), written);
      }
    }
  }

  /// The tensor of the file under the name of the parameter, or, where it is the transpose, a node that turns it.
  void from_source(const Tensor& tensor, const onnx::TensorProto& source, onnx::TensorProto& written) {
    written.CopyFrom(source);
    if (tensor.layout != Tensor::Layout::kTransposed) {
      written.set_name(tensor.name);
      written.mutable_dims()->Assign(tensor.dims.begin(), tensor.dims.end());  // without the axes that nodes add
      return;
    }
    const std::string kept = tensor.name + "/stored";
    written.set_name(kept);
    OnnxNode turn;
    turn.name = turn.op = "Transpose";
    onnx::NodeProto& node = *graph_.add_node();
    write_node(turn, node);
    node.add_input(kept);
    node.add_output(tensor.name);
    // It comes before whatever reads it.
    for (int i = graph_.node_size() - 1; i > 0; --i) graph_.mutable_node()->SwapElements(i, i - 1);
  }

  onnx::GraphProto& graph_;
  const std::map<std::string, NewTensor>& tensors_;
  std::set<std::string> added_;
};

}  // namespace

Result<std::string> export_onnx(const std::string& path, const std::string& trusted_root, const ParameterRules& rules,
                                const std::map<std::string, NewTensor>& tensors, std::set<std::string>& replaced) {
  GP_TRY(const MappedFile file, MappedFile::open(path, kMaxFileBytes));
  onnx::ModelProto model;
  if (!model.ParseFromArray(file.bytes().data(), static_cast<int>(file.bytes().size())))
    return about(path, Code::kMalformedFile, "the file is no ONNX model", "give the model that the plan was made from");
  GP_TRY(const std::set<std::string> added,
         ParameterRestorer(*model.mutable_graph(), tensors).restore(path, trusted_root, file.text(), rules));
  Replacement replacement(tensors, replaced);
  GP_TRY_VOID(replacement.initializers(*model.mutable_graph()));
  GP_TRY_VOID(replacement.constants(*model.mutable_graph()));
  GP_CHECK(std::ranges::includes(replaced, added));
  Inliner inliner(path, trusted_root);
  GP_TRY_VOID(inliner.graph(*model.mutable_graph()));
  for (onnx::FunctionProto& function : *model.mutable_functions()) GP_TRY_VOID(inliner.nodes(*function.mutable_node()));
  if (model.ByteSizeLong() > kMaxFileBytes) return too_large(path);
  return model.SerializeAsString();
}

}  // namespace graphpipe::frontend
