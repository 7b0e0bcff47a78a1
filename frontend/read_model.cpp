#include "frontend/read_model.h"

#include <onnx/onnx_pb.h>

#include <cstring>

#include "frontend/exported_call.h"
#include "frontend/folding_note.h"

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;

template <typename T, typename Items>
void append_elements(std::string& bytes, const Items& items) {
  for (const auto item : items) {
    const T element = static_cast<T>(item);
    char raw[sizeof(T)];
    std::memcpy(raw, &element, sizeof(T));
    bytes.append(raw, sizeof(T));
  }
}

/// The typed fields of TensorProto as dense bytes.
std::string typed_elements(const pb::TensorProto& tensor) {
  std::string bytes;
  switch (tensor.data_type()) {
    case pb::TensorProto::FLOAT:
      append_elements<float>(bytes, tensor.float_data());
      break;
    case pb::TensorProto::DOUBLE:
      append_elements<double>(bytes, tensor.double_data());
      break;
    case pb::TensorProto::INT64:
      append_elements<int64_t>(bytes, tensor.int64_data());
      break;
    case pb::TensorProto::INT32:
      append_elements<int32_t>(bytes, tensor.int32_data());
      break;
    case pb::TensorProto::INT16:
    case pb::TensorProto::UINT16:
    case pb::TensorProto::FLOAT16:
    case pb::TensorProto::BFLOAT16:
      append_elements<uint16_t>(bytes, tensor.int32_data());
      break;
    case pb::TensorProto::UINT32:
      append_elements<uint32_t>(bytes, tensor.uint64_data());
      break;
    case pb::TensorProto::UINT64:
      append_elements<uint64_t>(bytes, tensor.uint64_data());
      break;
    case pb::TensorProto::INT8:
    case pb::TensorProto::UINT8:
    case pb::TensorProto::BOOL:
      append_elements<uint8_t>(bytes, tensor.int32_data());
      break;
    default:
      // Small floats and integers: bytes, packed if an element is smaller than a byte.
      append_elements<uint8_t>(bytes, tensor.int32_data());
      break;
  }
  return bytes;
}

class Reader {
 public:
  explicit Reader(size_t slot_count) : slot_count_(slot_count) {}

  GraphBody graph(const pb::GraphProto& proto);
  Diagnostics& problems() { return problems_; }

 private:
  Tensor tensor(const pb::TensorProto& proto, const std::string& owner);
  TensorData tensor_data(const pb::TensorProto& proto, const std::string& owner);
  OnnxNode node(const pb::NodeProto& proto);
  Attribute attribute(const pb::AttributeProto& proto, const std::string& owner);
  ValueInfo value_info(const pb::ValueInfoProto& proto);
  void problem(Code code, const std::string& origin, std::string message, std::string hint) {
    problems_.push_back({code, Severity::kError, ModelText(origin), std::move(message), std::move(hint)});
  }

  size_t slot_count_;
  Diagnostics problems_;
};

TensorData Reader::tensor_data(const pb::TensorProto& proto, const std::string& owner) {
  TensorData data;
  if (proto.data_location() == pb::TensorProto::EXTERNAL) {
    for (const auto& entry : proto.external_data())
      if (entry.key() == "location" && entry.value().rfind("slot ", 0) == 0)
        data.slot = std::strtoll(entry.value().c_str() + 5, nullptr, 10);
    if (data.slot >= 0 && data.slot < static_cast<int64_t>(slot_count_)) return data;
    problem(Code::kBadModel, owner, "a tensor whose data lie nowhere", "export the model again");
    data.slot = -1;
    return data;
  }
  if (proto.has_segment()) problem(Code::kBadModel, owner, "a tensor in segments", "export the model again");
  data.bytes = proto.has_raw_data() ? proto.raw_data() : typed_elements(proto);
  return data;
}

Tensor Reader::tensor(const pb::TensorProto& proto, const std::string& owner) {
  Tensor tensor;
  tensor.name = proto.name();
  tensor.onnx_type = proto.data_type();
  tensor.dims.assign(proto.dims().begin(), proto.dims().end());
  const std::string& label = tensor.name.empty() ? owner : tensor.name;
  tensor.data = tensor_data(proto, label);
  if (tensor.dims.size() > 64) {
    problem(Code::kBadModel, label, text("a tensor of rank ", tensor.dims.size()), "the largest rank is 64");
    tensor.dims.clear();
    return tensor;
  }
  int64_t elements = 1;
  for (int64_t dim : tensor.dims)
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) {
      problem(Code::kBadModel, label, "a tensor with a negative dimension or more than 2^63 elements",
              "export the model again");
      return tensor;
    }
  const std::optional<ir::DType> dtype = dtype_of_onnx(tensor.onnx_type);
  if (!dtype || tensor.data.slot >= 0) return tensor;  // slots are checked when they are opened
  const int64_t packed = wire::find_element_type(*dtype)->packed;
  int64_t expected = 0;
  if (__builtin_mul_overflow(elements, ir::bytes_per_element(*dtype), &expected) ||
      expected / packed + (expected % packed != 0 ? 1 : 0) != static_cast<int64_t>(tensor.data.bytes.size()))
    problem(Code::kBadModel, label,
            text("a tensor of ", elements, " elements of ", onnx_type_name(tensor.onnx_type), " with ",
                 tensor.data.bytes.size(), " bytes of data"),
            "export the model again");
  return tensor;
}

Attribute Reader::attribute(const pb::AttributeProto& proto, const std::string& owner) {
  using Kind = Attribute::Kind;
  Attribute attribute;
  attribute.name = proto.name();
  switch (proto.type()) {
    case pb::AttributeProto::INT:
      attribute.kind = Kind::kInt, attribute.i = proto.i();
      break;
    case pb::AttributeProto::FLOAT:
      attribute.kind = Kind::kFloat, attribute.f = static_cast<double>(proto.f());
      break;
    case pb::AttributeProto::STRING:
      attribute.kind = Kind::kString, attribute.s = proto.s();
      break;
    case pb::AttributeProto::INTS:
      attribute.kind = Kind::kInts;
      attribute.ints.assign(proto.ints().begin(), proto.ints().end());
      break;
    case pb::AttributeProto::FLOATS:
      attribute.kind = Kind::kFloats;
      attribute.floats.assign(proto.floats().begin(), proto.floats().end());
      break;
    case pb::AttributeProto::STRINGS:
      attribute.kind = Kind::kStrings;
      attribute.strings.assign(proto.strings().begin(), proto.strings().end());
      break;
    case pb::AttributeProto::TENSOR:
      attribute.kind = Kind::kTensor;
      attribute.tensor.push_back(tensor(proto.t(), owner));
      break;
    case pb::AttributeProto::GRAPH:
      attribute.kind = Kind::kGraph;
      attribute.graph.push_back(graph(proto.g()));
      break;
    default:
      break;
  }
  return attribute;
}

OnnxNode Reader::node(const pb::NodeProto& proto) {
  OnnxNode node;
  node.name = proto.name();
  node.op = proto.op_type();
  node.domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  const std::string label = node_label(node).raw();
  for (const auto& item : proto.attribute()) node.attributes.push_back(attribute(item, label));
  for (const auto& item : proto.metadata_props()) {
    if (item.key().ends_with("fx_node")) node.exported_from = item.value();
    if (item.key() == kScopes) node.module = item.value();
    if (item.key() == kStackTrace) {
      node.callers = callers_in(item.value());
      node.code = code_in(item.value());
    }
  }
  return node;
}

ValueInfo Reader::value_info(const pb::ValueInfoProto& proto) {
  ValueInfo info;
  info.name = proto.name();
  info.is_tensor = proto.type().has_tensor_type();
  if (!info.is_tensor) return info;
  const auto& type = proto.type().tensor_type();
  info.onnx_type = type.elem_type();
  info.has_shape = type.has_shape();
  for (const auto& dim : type.shape().dim()) {
    DeclaredDim declared;
    if (dim.has_dim_value()) declared.size = dim.dim_value();
    if (dim.has_dim_param()) declared.symbol = dim.dim_param();
    info.dims.push_back(std::move(declared));
  }
  return info;
}

GraphBody Reader::graph(const pb::GraphProto& proto) {
  GraphBody body;
  body.nodes.reserve(static_cast<size_t>(proto.node_size()));
  for (const auto& item : proto.node()) body.nodes.push_back(node(item));
  for (const auto& item : proto.initializer()) body.initializers.push_back(tensor(item, item.name()));
  for (const auto& item : proto.input()) body.inputs.push_back(value_info(item));
  for (const auto& item : proto.output()) body.outputs.push_back(value_info(item));
  for (const auto& item : proto.value_info()) {
    body.value_info.push_back(value_info(item));
    for (const auto& entry : item.metadata_props())
      if (entry.key() == kFoldingNote) body.folded_from[item.name()] = entry.value();
  }
  for (const auto& item : proto.metadata_props()) body.metadata[item.key()] = item.value();
  body.has_sparse = proto.sparse_initializer_size() > 0;
  return body;
}

}  // namespace

Result<Model> read_model(const pb::ModelProto& proto, size_t slot_count) {
  Model model;
  model.ir_version = proto.ir_version();
  model.producer = proto.producer_name();
  for (const auto& import : proto.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") model.opset = import.version();
  Reader reader(slot_count);
  model.graph = reader.graph(proto.graph());
  if (!reader.problems().empty()) return reader.problems();
  return model;
}

}  // namespace graphpipe::frontend
