#pragma once
// An ONNX model as plain structs, passed between the steps of the import. No protobuf, no weight bytes.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/types.h"
#include "support/text.h"

namespace graphpipe::frontend {

/// A tensor's elements: a slot of the wire scan (large), or dense little-endian bytes (small).
struct TensorData {
  /// Index into WireScan::slots, or -1 if `bytes` holds the elements.
  int64_t slot = -1;
  std::string bytes;
};

struct Tensor {
  std::string name;
  /// TensorProto.DataType, even if it has no ir::DType.
  int onnx_type = 0;
  std::vector<int64_t> dims;
  TensorData data;
  /// How the data give the elements: as ONNX says; or, of a tensor that restore_parameters() has added, as those of its
  /// transpose, or all zero, without data.
  enum class Layout : uint8_t { kDense, kTransposed, kZeros } layout = Layout::kDense;
};

/// One dimension of a declared type: a size, a symbol, or unknown.
struct DeclaredDim {
  std::optional<int64_t> size;
  std::string symbol;
};

struct ValueInfo {
  std::string name;
  int onnx_type = 0;
  bool is_tensor = false;
  bool has_shape = false;
  std::vector<DeclaredDim> dims;
};

struct GraphBody;

struct Attribute {
  enum class Kind : uint8_t { kInt, kFloat, kString, kTensor, kGraph, kInts, kFloats, kStrings, kOther };
  std::string name;
  Kind kind = Kind::kOther;
  int64_t i = 0;
  double f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  /// One element for kTensor and kGraph.
  std::vector<Tensor> tensor;
  std::vector<GraphBody> graph;
};

struct OnnxNode {
  std::string name;
  std::string op;
  std::string domain;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
  /// The PyTorch call that it was exported from (exported_call.h), or empty.
  std::string exported_from;
  /// The module that made the call, "encoder.layers.1", and the line of its code, as traces of Python print it; or
  /// empty.
  std::string module, code;
  /// Lines of code of the modules around it that may pass members on to it (place_of_call()).
  std::string callers;

  const Attribute* find(std::string_view attribute) const;
};

struct GraphBody {
  std::vector<OnnxNode> nodes;
  std::vector<Tensor> initializers;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  /// Types that shape inference or the exporter wrote down: a cross-check only.
  std::vector<ValueInfo> value_info;
  std::map<std::string, std::string> metadata;
  /// For tensors that an exporter's optimiser has computed: its note of what from (folding_note.h).
  std::map<std::string, std::string> folded_from;
  bool has_sparse = false;
};

struct Model {
  int64_t ir_version = 0;
  int64_t opset = 0;
  std::string producer;
  GraphBody graph;
};

/// The element type, or nullopt if the IR has none (strings, complex numbers).
std::optional<ir::DType> dtype_of_onnx(int onnx_type);
/// "float", "string", "type 23": for messages.
std::string onnx_type_name(int onnx_type);
/// "[1, 'batch', 3]": as the file writes it.
std::string declared_text(const ValueInfo& info);
/// The node's name, or its first output's if it has none.
ModelText node_label(const OnnxNode& node);

}  // namespace graphpipe::frontend
