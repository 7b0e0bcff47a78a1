#include "frontend/export_onnx.h"

#include <onnx/onnx_pb.h>

#include <limits>

#include "frontend/model.h"
#include "support/mapped_file.h"

namespace graphpipe::frontend {
namespace {

namespace onnx = graphpipe_onnx;

constexpr size_t kMaxFileBytes = std::numeric_limits<int32_t>::max();

Diagnostic about(const std::string& name, Code code, std::string message, std::string hint) {
  return Diagnostic{.code = code, .origin = ModelText(name), .message = std::move(message), .hint = std::move(hint)};
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

// Leaves out what would have to lie beside the new file.
Status check_whole(const onnx::TensorProto& tensor, const std::string& name) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return Ok{};
  return about(name, Code::kUnsupportedType,
               "the tensor is no parameter, and its elements lie in a file beside the model",
               "export the model with its data inside, or take weights alone: -o FILE.safetensors");
}

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
    if (found == tensors_.end()) return check_whole(tensor, name);
    replaced_.insert(name);
    return replace_elements(tensor, name, found->second);
  }

  const std::map<std::string, NewTensor>& tensors_;
  std::set<std::string>& replaced_;
};

}  // namespace

Result<std::string> export_onnx(const std::string& path, const std::map<std::string, NewTensor>& tensors,
                                std::set<std::string>& replaced) {
  GP_TRY(const MappedFile file, MappedFile::open(path, kMaxFileBytes));
  onnx::ModelProto model;
  if (!model.ParseFromArray(file.bytes().data(), static_cast<int>(file.bytes().size())))
    return about(path, Code::kMalformedFile, "the file is no ONNX model", "give the model that the plan was made from");
  Replacement replacement(tensors, replaced);
  GP_TRY_VOID(replacement.initializers(*model.mutable_graph()));
  GP_TRY_VOID(replacement.constants(*model.mutable_graph()));
  if (model.ByteSizeLong() > kMaxFileBytes)
    return about(path, Code::kLimitExceeded,
                 "with its weights inside, the model is larger than the 2 GiB of an ONNX file",
                 "take weights alone: -o FILE.safetensors");
  return model.SerializeAsString();
}

}  // namespace graphpipe::frontend
