#pragma once
// The ops::Emitter of generated functions: collects the lines of one node.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/function_writer.h"
#include "ops/op_def.h"

namespace graphpipe::codegen {

/// "64", "b", "4 * b", "2 * b * b".
std::string dim_text(ir::Dim dim);
/// "f32[b,64]", for comments.
std::string type_text(const ir::TensorType& type);
/// The options of tensors that a generated function creates; needs kTensorOptionsHeader.
std::string options_text(ir::DType dtype);
inline constexpr std::string_view kTensorOptionsHeader = "runtime/tensor_options.h";

class NodeEmitter final : public ops::Emitter {
 public:
  NodeEmitter(const ir::Graph& graph, ir::NodeId id, const std::map<ir::ParamId, size_t>& weight_index,
              const IdMap<ir::ValueId, ir::ParamId>& param_of, Naming& naming, std::set<std::string>& headers);

  const ops::NodeView& node() const override { return view_; }
  std::string in(size_t i) const override;
  std::string dim(ir::Dim dim) const override { return dim_text(dim); }
  std::string dims(const ir::Shape& shape) const override;
  std::string options(ir::DType dtype) override;
  std::string random_key() const override;
  void assign(size_t i, std::string_view expression, std::string_view header) override;
  void include(std::string_view header) override;
  void statement(std::string_view text, std::string_view header) override;
  std::string local(std::string_view name) const override;

  /// The node's lines. A node with statements of its own becomes a block, so that its local variables end with it.
  /// State that the node updates (running statistics) is a copy if the forward runs a second time for the same item.
  std::vector<std::string> lines() const;
  bool assigned(size_t i) const { return assigned_.contains(i); }

 private:
  struct Line {
    std::string text;
    bool is_assignment = false;
  };

  const ir::Graph* graph_;
  ir::NodeId id_;
  ops::NodeView view_;
  const std::map<ir::ParamId, size_t>* weight_index_;
  const IdMap<ir::ValueId, ir::ParamId>* param_of_;
  Naming* naming_;
  std::set<std::string>* headers_;
  std::string operand(size_t i) const;

  uint32_t updated_inputs_ = 0;
  std::vector<Line> lines_;
  std::set<size_t> assigned_;
};

}  // namespace graphpipe::codegen
