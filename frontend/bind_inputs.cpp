#include "frontend/bind_inputs.h"

#include <algorithm>

#include "frontend/one_sample.h"

namespace graphpipe::frontend {
namespace {

/// Inputs that the user feeds.
std::vector<const ValueInfo*> fed_inputs(const GraphBody& graph) {
  std::set<std::string_view> initializers;
  for (const Tensor& tensor : graph.initializers) initializers.insert(tensor.name);
  std::vector<const ValueInfo*> inputs;
  for (const ValueInfo& input : graph.inputs)
    if (initializers.count(input.name) == 0) inputs.push_back(&input);
  return inputs;
}

const ir::SymbolBinding* binding_of(const ImportRequest& request, const std::string& symbol) {
  for (const ir::SymbolBinding& binding : request.spec.bindings)
    if (binding.symbol.raw() == symbol) return &binding;
  return nullptr;
}

/// Inputs that recurrent nodes of layout 0 read as sequence [T, B, I] or state [D, B, H].
std::set<std::string> time_first_inputs(const GraphBody& graph) {
  std::set<std::string> names;
  for (const OnnxNode& node : graph.nodes) {
    const bool is_recurrent = node.domain.empty() && (node.op == "LSTM" || node.op == "GRU" || node.op == "RNN");
    const Attribute* layout = node.find("layout");
    if (!is_recurrent || (layout != nullptr && layout->i != 0)) continue;
    for (const size_t i : {0, 5, 6})
      if (i < node.inputs.size() && !node.inputs[i].empty()) names.insert(node.inputs[i]);
  }
  return names;
}

size_t batch_axis(const ValueInfo& input, const std::set<std::string>& time_first) {
  return time_first.count(input.name);
}

class InputBinder {
 public:
  InputBinder(const ImportRequest& request, const BatchChoice& batch, Lowering& lowering)
      : request_(request), batch_(batch), lowering_(lowering) {}

  void bind(const ValueInfo& input);
  Diagnostics& problems() { return problems_; }

 private:
  ir::Dim dim_of(const ValueInfo& input, size_t axis);
  /// The graph's input has a leading sample axis; the nodes of the file read a single sample.
  void bind_sample(const ValueInfo& input, ir::Value value);
  void problem(Code code, const ValueInfo& input, std::string message, std::string hint) {
    problems_.push_back(
        {.code = code, .origin = ModelText(input.name), .message = std::move(message), .hint = std::move(hint)});
  }

  const ImportRequest& request_;
  const BatchChoice& batch_;
  Lowering& lowering_;
  Diagnostics problems_;
};

ir::Dim InputBinder::dim_of(const ValueInfo& input, size_t axis) {
  const DeclaredDim& dim = input.dims[axis];
  if (dim.size) {
    if (*dim.size < 1)
      problem(Code::kBadModel, input, text("its dimension ", axis, " is ", *dim.size), "export the model again");
    if (axis == batch_axis(input, batch_.time_first) && batch_.traced > 0 && *dim.size == batch_.traced)
      return ir::Dim::batch();
    return ir::Dim::fixed(std::max<int64_t>(1, *dim.size));
  }
  if (!request_.spec.one_sample && dim.symbol == batch_.symbol &&
      (!dim.symbol.empty() || (axis == batch_axis(input, batch_.time_first) && batch_.traced == 0)))
    return ir::Dim::batch();
  const ir::SymbolBinding* binding = binding_of(request_, dim.symbol);
  if (binding != nullptr && binding->size > 0) return ir::Dim::fixed(binding->size);
  if (binding != nullptr && request_.spec.one_sample)
    problem(Code::kUsage, input, text("--bind ", quoted(ModelText(dim.symbol)), "=batch, and --one-sample"),
            "with --one-sample no dimension is the batch: give it a size");
  if (binding != nullptr) return ir::Dim::batch();
  if (dim.symbol.empty()) {
    problem(Code::kUnresolvedShape, input, text("its dimension ", axis, " has neither a size nor a name"),
            "export with a size for it: only the first dimension of each input may be dynamic");
  } else {
    const std::string symbol = quoted(ModelText(dim.symbol));
    problem(Code::kUnresolvedShape, input, text("its dimension ", axis, ", ", symbol, ", has no size"),
            text("give it one by --bind ", symbol, "=SIZE",
                 request_.spec.one_sample ? "" : ", or =batch if it is the batch too"));
  }
  return ir::Dim::fixed(1);
}

void InputBinder::bind(const ValueInfo& input) {
  const std::optional<ir::DType> dtype = dtype_of_onnx(input.onnx_type);
  Binding poisoned;
  poisoned.poisoned = true;
  if (!input.is_tensor || !dtype) {
    problem(Code::kUnsupportedType, input,
            input.is_tensor ? text("an input of element type ", onnx_type_name(input.onnx_type))
                            : "an input that is a sequence or an optional value, of which the file does not say how "
                              "many tensors it has",
            input.is_tensor ? "use tensors of numbers or bool: encode strings as indices before the model"
                            : "give each of its tensors an input of its own");
    return lowering_.bind(input.name, std::move(poisoned));
  }
  if (!input.has_shape || input.dims.size() > static_cast<size_t>(kMaxRank)) {
    problem(Code::kUnresolvedShape, input, "an input without a shape, or of rank above 64", "export it with its shape");
    return lowering_.bind(input.name, std::move(poisoned));
  }
  ir::Value value{.type = {*dtype, {}}};
  for (size_t axis = 0; axis < input.dims.size(); ++axis) value.type.shape.push_back(dim_of(input, axis));
  const std::optional<ir::Dim> count = ir::element_count(value.type.shape);
  if (!count || count->power > 1) {
    problem(Code::kUnresolvedShape, input, "it holds the batch twice, or more than 2^48 elements",
            "bind one of its symbols to a size");
    return lowering_.bind(input.name, std::move(poisoned));
  }
  for (size_t axis = 0; axis < input.dims.size(); ++axis)
    if (!value.type.shape[axis].is_fixed()) {
      value.batch = ir::BatchKind::kAxis;
      value.batch_axis = static_cast<int>(axis);
    }
  if (request_.spec.one_sample) return bind_sample(input, std::move(value));
  const ir::ValueId id = lowering_.graph().add_input({.name = ModelText(input.name)}, std::move(value));
  lowering_.bind_value(input.name, id);
}

void InputBinder::bind_sample(const ValueInfo& input, ir::Value value) {
  const ir::TensorType sample = value.type;
  value = {.type = {sample.dtype, with_samples(sample.shape)}, .batch = ir::BatchKind::kAxis, .batch_axis = 0};
  const ModelText name(input.name);
  const ir::ValueId id = lowering_.graph().add_input({.name = name}, std::move(value));
  Result<ir::ValueId> one = reshape_one_sample(lowering_.graph(), name, id, sample.shape);
  if (one.ok()) return lowering_.bind_value(input.name, *one);
  problems_.insert(problems_.end(), one.problems().begin(), one.problems().end());
}

}  // namespace

BatchChoice choose_batch(const GraphBody& graph, const ImportRequest& request) {
  if (request.spec.one_sample) return {};
  for (const ir::SymbolBinding& binding : request.spec.bindings)
    if (binding.size == 0) return {.symbol = binding.symbol.raw()};
  const std::vector<const ValueInfo*> inputs = fed_inputs(graph);
  const std::set<std::string> time_first = time_first_inputs(graph);
  for (const ValueInfo* input : inputs)
    if (const size_t axis = batch_axis(*input, time_first); axis < input->dims.size() && !input->dims[axis].size) {
      const ir::SymbolBinding* binding = binding_of(request, input->dims[axis].symbol);
      if (binding == nullptr) return {.symbol = input->dims[axis].symbol, .time_first = time_first};
    }
  for (const ValueInfo* input : inputs)
    if (const size_t axis = batch_axis(*input, time_first); axis < input->dims.size() && input->dims[axis].size)
      return {.traced = std::max<int64_t>(1, *input->dims[axis].size), .time_first = time_first};
  return {};
}

Status bind_inputs(const GraphBody& graph, const ImportRequest& request, const BatchChoice& batch, Lowering& lowering) {
  InputBinder binder(request, batch, lowering);
  std::set<std::string> symbols;
  for (const ValueInfo* input : fed_inputs(graph)) {
    binder.bind(*input);
    for (const DeclaredDim& dim : input->dims) symbols.insert(dim.symbol);
  }
  for (const ir::SymbolBinding& binding : request.spec.bindings)
    if (symbols.count(binding.symbol.raw()) == 0 || binding.size < 0)
      binder.problems().push_back({.code = Code::kUsage,
                                   .origin = binding.symbol,
                                   .message = "a symbol that no input has, or a negative size",
                                   .hint = "run `graphpipe inspect` to see the symbols"});
  const std::vector<ir::Input>& made = lowering.graph().inputs();
  const bool batched = std::any_of(made.begin(), made.end(), [&](const ir::Input& input) {
    return lowering.graph().value(input.value).batch == ir::BatchKind::kAxis;
  });
  if (!batched && binder.problems().empty() && !request.spec.one_sample)
    binder.problems().push_back({.code = Code::kBatchNotFound,
                                 .message = "no input has a dimension that could be the batch",
                                 .hint = batch_hint()});
  if (!binder.problems().empty()) return binder.problems();
  return Ok{};
}

}  // namespace graphpipe::frontend
