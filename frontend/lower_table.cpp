#include <map>

#include "frontend/check_nodes.h"
#include "frontend/node_context.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

const std::map<std::string_view, HandlerEntry>& handlers() {
  static const std::map<std::string_view, HandlerEntry> kHandlers = [] {
    std::map<std::string_view, HandlerEntry> all;
    for (const auto& family :
         {shape_handlers(),  index_handlers(),     reduce_handlers(),     neural_handlers(),    sequence_handlers(),
          loop_handlers(),   branch_handlers(),    recurrent_handlers(),  constant_handlers(),  resize_handlers(),
          random_handlers(), quantized_handlers(), composite_handlers(),  einsum_handlers(),    fourier_handlers(),
          pool_handlers(),   place_handlers(),     col2im_handlers(),     selection_handlers(), deform_handlers(),
          unpool_handlers(), mel_handlers(),       word_count_handlers(), neutral_handlers(),   edge_handlers(),
          clip_handlers()})
      for (const HandlerEntry& entry : family) all[entry.op] = entry;
    return all;
  }();
  return kHandlers;
}

}  // namespace

Handler find_handler(std::string_view op) {
  const auto found = handlers().find(op);
  return found == handlers().end() ? nullptr : found->second.handler;
}

ops::Dependence dependence_of(std::string_view op) {
  const auto found = handlers().find(op);
  if (ops::find_op(op) != nullptr || found == handlers().end()) return ops::dependence_of(op);
  return found->second.dependence;
}

std::optional<int64_t> default_axis_of(std::string_view op) {
  if (const ops::OpDef* entry = ops::find_op(op)) return entry->default_axis;
  const auto found = handlers().find(op);
  return found == handlers().end() ? std::nullopt : found->second.default_axis;
}

bool is_supported(const OnnxNode& node) {
  // Entries that only the compiler creates have names too; check_nodes knows no schema for them. Its Attention is a
  // fused op with a narrower meaning than ONNX's, which is expanded by its function body.
  if (node.op == "Attention") return false;
  return node.domain.empty() && is_onnx_operator(node.op) &&
         (find_handler(node.op) != nullptr || ops::find_op(node.op) != nullptr);
}

Status lower_plain(NodeContext& context) {
  ir::Attributes attributes;
  for (const Attribute& attribute : context.node().attributes) {
    using Kind = Attribute::Kind;
    // stash_type names the type in which ONNX computes statistics; our operators always use float32 or wider.
    if (attribute.name == "stash_type") continue;
    if (attribute.kind == Kind::kInt) attributes.set(attribute.name, attribute.i);
    if (attribute.kind == Kind::kFloat) attributes.set(attribute.name, attribute.f);
    if (attribute.kind == Kind::kString) attributes.set(attribute.name, attribute.s);
    if (attribute.kind == Kind::kInts) attributes.set(attribute.name, attribute.ints);
    if (attribute.kind == Kind::kFloats) attributes.set(attribute.name, attribute.floats);
    if (attribute.kind == Kind::kTensor || attribute.kind == Kind::kGraph || attribute.kind == Kind::kStrings)
      return context.problem(Code::kUnsupportedOp,
                             text("its attribute ", quoted(ModelText(attribute.name)), " is not supported"),
                             "use a form without it");
  }
  if (const std::optional<int64_t> default_axis = default_axis_of(context.node().op)) {
    if (!context.has_input(0)) return context.problem(Code::kBadModel, "has no input", "export the model again");
    GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", *default_axis), context.rank(0)));
    attributes.set("axis", axis);
  }
  GP_TRY(std::vector<ir::ValueId> inputs, context.all_values());
  return context.emit_outputs(context.node().op, std::move(inputs), std::move(attributes));
}

}  // namespace graphpipe::frontend
