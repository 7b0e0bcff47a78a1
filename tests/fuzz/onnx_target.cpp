// The ONNX importer as a fuzz target: models as seeds, and a mutator that changes models as models.

#include <onnx/defs/parser.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "support/check.h"
#include "tests/fuzz/exercise_model.h"
#include "tests/fuzz/one_operator_models.h"
#include "tests/fuzz/targets.h"

namespace graphpipe::tests {
namespace {

namespace pb = graphpipe_onnx;

std::vector<std::string> onnx_seeds();

const char* const kSeedTexts[] = {
    "g (float[N,6,4] x) => (float[M,K] y) { s = Shape<end = 1>(x) r = Constant<value_ints = [-1]>() "
    "t = Concat<axis = 0>(s, r) y = Reshape(x, t) }",
    "g (float[N,3,8,8] x, float[4,3,3,3] k) => (float[N,4] y) <float[4,4] w = "
    "{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> "
    "{ c = Conv<pads = [1,1,1,1], strides = [2,2]>(x, k) a = MaxPool<kernel_shape = [2,2]>(c) axes = "
    "Constant<value_ints "
    "= [2, 3]>() b = ReduceMean<keepdims = 0>(a, axes) y = Gemm<transB = 1>(b, w) }",
    "g (float[N,6] x) => (float[N,2] y) { two = Constant<value_int = 2>() i = Constant<value_int = 1>() "
    "p = SplitToSequence<axis = 1>(x, two) y = SequenceAt(p, i) }",
    "g (float[N,4,8] q, float[N,4,8] k, float[8] s, float[8] b) => (float[N,4,8] y) { t = Transpose<perm = [0,2,1]>(k) "
    "m = MatMul(q, t) p = Softmax<axis = -1>(m) v = MatMul(p, k) a = Add(v, q) y = LayerNormalization<axis = -1>(a, s, "
    "b) }",
    "g (int64[N,5] ids, float[7,4] table) => (float[N,4] y) { e = Gather<axis = 0>(table, ids) axes = "
    "Constant<value_ints "
    "= [1]>() y = ReduceSum<keepdims = 0>(e, axes) }",
    "g (float[N,3] x) => (float[N,3] y) { flag = Constant<value = bool {1}>() y = If(flag) <then_branch = t () => "
    "(float[N,3] a) { h = Neg(x) a = Exp(h) }, else_branch = e () => (float[N,3] b) { b = Neg(x) }> }",
    R"(<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g (float[N,3] x) => (float[N,3] y) { a = own.f<alpha = 0.5>(x) y = own.f(a) }
    <opset_import: ["" : 21], domain: "own"> f <alpha: float = 1.0> (a) => (b) { c = LeakyRelu<alpha: float = @alpha>(a)
      b = Add(c, a) })",
    "g (float[N,2,4,4] x) => (float[N,2,P,Q] y) { s = Constant<value_floats = [1.0, 1.0, 2.0, 1.5]>() y = Resize<mode "
    "= "
    "\"linear\">(x, , s) }",
    "g (float[N,4] x) => (float[N,4] y) { n = Constant<value_int = 3>() c = Constant<value = bool {1}>() y = Loop(n, "
    "c, x) "
    "<body = b (int64 i, bool go, float[N,4] h) => (bool on, float[N,4] r) { on = Identity(go) r = Neg(h) }> }",
    "<ir_version: 8, opset_import: [\"\" : 11]> g (float[N,3,4] x) => (float[N,P] y) { a = ReduceSum<axes = [1], "
    "keepdims "
    "= 0>(x) b = Softmax<axis = 1>(a) p = Pad<mode = \"constant\">(b, w) y = Unsqueeze<axes = [0]>(p) }",
    "g (float[7,N,3] x, float[1,16,3] w, float[1,16,4] r) => (float[7,1,N,4] y) { y, h, c = LSTM<hidden_size = 4>(x, "
    "w, "
    "r) }",
    "g (float[N,4] x, int64[N,2] i) => (float[N,4] y) { u = GatherElements<axis = 1>(x, i) z = ScatterElements<axis = "
    "1, "
    "reduction = \"add\">(x, i, u) e = Einsum<equation = \"ij,ij->ij\">(z, x) k = Constant<value_int = 2>() v, n = "
    "TopK(e, "
    "k) w = Where(f, e, x) y = CumSum(e, k) f = Cast<to = 9>(e) }",
    // Attention of opset 23, causal and with a mask, behind an operator whose output ONNX's inference leaves open.
    R"(<ir_version: 10, opset_import: ["" : 23]> g (float[N,8,16] x, bool[8,8] sees) => (float[N,8,16] y)
    <float[8] s = {1, 1, 1, 1, 1, 1, 1, 1}, float[8] b = {0, 0, 0, 0, 0, 0, 0, 0}> {
      q = GroupNormalization<num_groups = 4>(x, s, b)
      a = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>(q, q, q)
      y = Attention<q_num_heads = 2, kv_num_heads = 2, scale = 0.5>(a, q, x, sees) })",
    // A branch on an input, a branch on a weight, and a loop that a weight ends; a value that the module detaches.
    R"(g (float[N,4] x, bool up) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}, float limit = {3}, float half = {0.5}> {
      a = Mul(x, w)
      c = If(up) <then_branch = yes () => (float[N,4] b) { b = Sqrt(a) },
                  else_branch = no () => (float[N,4] d) { d = Mul(a, w) }>
      large = Greater(limit, half)
      e = If(large) <then_branch = yes2 () => (float[N,4] b2) { b2 = Exp(c) },
                     else_branch = no2 () => (float[N,4] d2) { h = Neg(a) d2 = Mul(h, c) }>
      detached = Identity(e)
      bound = Constant<value_int = 3>()
      true = Constant<value = bool {1}>()
      z = Loop(bound, true, detached) <body = b3 (int64 i, bool go, float[N,4] h) => (bool on, float[N,4] g) {
        g = Mul(h, w) f = Cast<to = 1>(i) on = Less(f, limit) }>
      y = Add(z, a) })",
    // A kernel under weight standardisation.
    R"(g (float[N,1,4,4] x) => (float[N,2,4,3] y) <float[2,1,1,2] w = {1, 2, 3, 5}, float[2] b = {0.5, 0.25}> {
      flat_shape = Constant<value_ints = [1, 2, 2]>() shape = Constant<value_ints = [2, 1, 1, 2]>()
      axes = Constant<value_ints = [0, 2]>() ones = Constant<value = float[2] {1, 1}>()
      zeros = Constant<value = float[2] {0, 0}>() flat = Reshape(w, flat_shape)
      mean = ReduceMean<keepdims = 0>(flat, axes) all = ReduceMean(flat, axes) apart = Sub(flat, all)
      squares = Mul(apart, apart) variance = ReduceMean<keepdims = 0>(squares, axes)
      normal = BatchNormalization<epsilon = 0.001>(flat, ones, zeros, mean, variance)
      kernel = Reshape(normal, shape) y = Conv(x, kernel, b) })",
    // nn.EmbeddingBag: a loop over the bags whose places are numbers of the data, as torch's exporter stacks it.
    R"(<ir_version: 10, opset_import: ["" : 21], producer_name: "pytorch"> g (int64[N,4] ids) => (float[N,3] y)
    <float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
      zero = Constant<value = int64 {0}>() n = Shape<end = 1>(ids) four = Constant<value = int64 {4}>()
      minus = Constant<value_ints = [-1]>() all1 = Mul(n, four) first = Constant<value_ints = [0]>()
      all = Squeeze(all1, first) flat = Reshape(ids, minus) starts = Range(zero, all, four)
      offsets = Concat<axis = 0>(starts, all1) one = Constant<value_ints = [1]>()
      most = Constant<value_ints = [9223372036854775807]>() ends = Slice(offsets, one, most, first, one)
      es = Shape(ends) count = Gather(es, zero) yes = Constant<value = bool {1}>()
      y = Loop(count, yes) <body = bags (int64 i, bool c) => (bool c2, float[3] r) {
        s0 = Gather(offsets, i) e0 = Gather(ends, i) b0 = Constant<value_ints = [0]>()
        s = Unsqueeze(s0, b0) e = Unsqueeze(e0, b0) bag = Slice(flat, s, e, first) rows = Gather(w, bag)
        r = ReduceSum<keepdims = 0>(rows, b0) c2 = Cast<to = 9>(yes) }> })",
    // As torch's exporter writes it after its optimiser: merged norms and scales, transposed weights, no zero biases.
    R"(<ir_version: 10, opset_import: ["" : 21], producer_name: "pytorch"> g (float[N,2,3] x, int64[N] ids) => (float[N,2,4] y)
    <float[3] n0 = {1, 1, 1}, float[3,4] val_7 = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[2,1] val_3 = {1, 1},
     float[4,3] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[1,3] embedding_1 = {1, 2, 3},
     float[1,2,3] unsqueeze = {1, 2, 3, 1, 2, 3}> {
      normed = LayerNormalization(x, n0) again = LayerNormalization(normed, n0) scaled = Mul(again, n0)
      grouped = Mul(scaled, val_3) shifted = Add(grouped, val_3) rows = Gather(table, ids) axes = Constant<value_ints = [1]>()
      row = Unsqueeze(rows, axes) sum = Add(shifted, row) laid = Add(sum, embedding_1)
      placed = Add(laid, unsqueeze) headed = MatMul(placed, val_7)
      folded = MatMul(placed, val_7) y = Add(headed, folded) })",
};

/// What the calls of nodes with such outputs are, and the parameters and buffers that they take.
const std::map<std::string, const char*> kCalls = {
    {"detached", "detach.default](args = (%e,), kwargs = {})"},
    {"normed", "layer_norm.default](args = (%x, [3], %p_n0), kwargs = {})"},
    {"again", "layer_norm.default](args = (%normed, [3], %p_n1), kwargs = {})"},
    {"scaled", "mul.Tensor](args = (%again, %p_gain), kwargs = {})"},
    {"grouped", "group_norm.default](args = (%scaled, 1, %p_weight, %p_shift), kwargs = {})"},
    {"shifted", "group_norm.default](args = (%scaled, 1, %p_weight, %p_shift), kwargs = {})"},
    {"rows", "embedding.default](args = (%p_table, %ids), kwargs = {})"},
    {"placed", "add.Tensor](args = (%laid, %unsqueeze), kwargs = {})"},
    {"headed", "linear.default](args = (%placed, %p_table, %p_bias), kwargs = {})"},
    {"folded", "linear.default](args = (%layer_norm_2, %p_w, %b_zeros), kwargs = {})"}};
constexpr const char* kSignature =
    "p_n0: PARAMETER target='n0'\np_n1: PARAMETER target='n1'\np_gain: PARAMETER target='gain'\np_weight: PARAMETER "
    "target='weight'\np_shift: PARAMETER target='shift'\np_table: PARAMETER target='table'\np_bias: PARAMETER "
    "target='bias'\np_w: PARAMETER target='w'\nb_zeros: BUFFER target='zeros' persistent=True\np_head: PARAMETER "
    "target='head.weight'\n";

void note(google::protobuf::RepeatedPtrField<pb::StringStringEntryProto>& notes, const char* key, std::string value) {
  pb::StringStringEntryProto& entry = *notes.Add();
  entry.set_key(key);
  entry.set_value(std::move(value));
}

/// What torch's exporter notes of nodes, where it means more than their operators say, and of the graph.
void note_calls(pb::GraphProto& graph) {
  for (pb::NodeProto& node : *graph.mutable_node()) {
    const auto call = node.output_size() == 0 ? kCalls.end() : kCalls.find(node.output(0));
    if (call == kCalls.end()) continue;
    note(*node.mutable_metadata_props(), "pkg.torch.onnx.fx_node",
         text("%", call->first, " : [num_users=1] = call_function[target=torch.ops.aten.", call->second));
    if (call->first == "placed") {
      pb::ValueInfoProto& value = *graph.add_value_info();
      value.set_name("unsqueeze");
      note(*value.mutable_metadata_props(), "pkg.onnxscript.optimizer.folded_from",
           "['head.weight', 'index', 'permute']");
    }
    if (call->first == "normed")
      note(*graph.mutable_metadata_props(), "pkg.torch.export.ExportedProgram.graph_signature", kSignature);
  }
}

std::string exported_model() {
  std::ifstream file(std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/dlrm/model.onnx", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
T* any_of(google::protobuf::RepeatedPtrField<T>* items, Dice& dice) {
  return items->empty() ? nullptr : items->Mutable(static_cast<int>(dice.below(static_cast<size_t>(items->size()))));
}

class Mutator {
 public:
  Mutator(pb::ModelProto& model, Dice& dice) : model_(model), dice_(dice) { visit(*model.mutable_graph()); }

  void change();

 private:
  using Nodes = google::protobuf::RepeatedPtrField<pb::NodeProto>;

  void visit(pb::GraphProto& graph);
  pb::GraphProto& any_graph() { return *graphs_[dice_.below(graphs_.size())]; }
  /// The nodes of a graph, a body or a function.
  Nodes& any_nodes();
  /// A name that something in the model has.
  std::string any_name();
  void change_operands(pb::NodeProto& node);
  void change_attribute(pb::NodeProto& node);
  void change_operator(pb::NodeProto& node);
  void move_nodes(Nodes& nodes);
  void change_type();
  void change_tensor();
  void change_interface();
  void wrap(Nodes& nodes);
  void splice(Nodes& nodes);

  pb::ModelProto& model_;
  Dice& dice_;
  std::vector<pb::GraphProto*> graphs_;
};

void Mutator::visit(pb::GraphProto& graph) {
  graphs_.push_back(&graph);
  for (pb::NodeProto& node : *graph.mutable_node())
    for (pb::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g() && graphs_.size() < 50) visit(*attribute.mutable_g());
}

Mutator::Nodes& Mutator::any_nodes() {
  pb::FunctionProto* function = dice_.below(4) == 0 ? any_of(model_.mutable_functions(), dice_) : nullptr;
  return function != nullptr ? *function->mutable_node() : *any_graph().mutable_node();
}

std::string Mutator::any_name() {
  pb::GraphProto& graph = any_graph();
  if (dice_.below(12) == 0) return "";
  if (const auto* node = any_of(graph.mutable_node(), dice_); node != nullptr && dice_.below(2) == 0)
    if (node->output_size() > 0) return node->output(static_cast<int>(dice_.below(node->output_size())));
  if (const auto* tensor = any_of(graph.mutable_initializer(), dice_); tensor != nullptr && dice_.below(2) == 0)
    return tensor->name();
  const auto* input = any_of(graph.mutable_input(), dice_);
  return input != nullptr ? input->name() : "x";
}

void Mutator::change_operands(pb::NodeProto& node) {
  auto& list = dice_.below(4) == 0 ? *node.mutable_output() : *node.mutable_input();
  const bool of_outputs = &list == node.mutable_output();
  const auto at = [&] { return static_cast<int>(dice_.below(static_cast<size_t>(list.size()))); };
  switch (dice_.below(4)) {
    case 0:
      if (!list.empty()) list.RemoveLast();
      break;
    case 1:
      list.Add(of_outputs ? "new" + std::to_string(dice_.below(9)) : any_name());
      break;
    case 2:
      if (!list.empty()) *list.Mutable(at()) = dice_.below(6) == 0 ? "" : any_name();
      break;
    default:
      if (list.size() > 1) list.SwapElements(at(), at());
  }
}

void Mutator::change_attribute(pb::NodeProto& node) {
  const auto* schema = pb::OpSchemaRegistry::Schema(node.op_type(), pb::ONNX_DOMAIN);
  if (schema == nullptr || schema->attributes().empty()) return;
  auto known = schema->attributes().begin();
  std::advance(known, dice_.below(schema->attributes().size()));
  auto& attributes = *node.mutable_attribute();
  for (int i = 0; i < attributes.size(); ++i) {
    if (attributes[i].name() != known->first) continue;
    if (dice_.below(4) == 0) attributes.DeleteSubrange(i, 1);
    else if (!attributes[i].has_g()) attributes[i] = random_attribute(known->first, attributes[i].type(), dice_);
    return;
  }
  *node.add_attribute() = random_attribute(known->first, known->second.type, dice_);
}

void Mutator::change_operator(pb::NodeProto& node) {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const pb::OpSchema& schema : pb::OpSchemaRegistry::get_all_schemas())
      if (schema.domain().empty()) names.push_back(schema.Name());
    return names;
  }();
  node.set_op_type(kNames[dice_.below(kNames.size())]);
  if (dice_.below(2) == 0) node.clear_attribute();
}

void Mutator::move_nodes(Nodes& nodes) {
  if (nodes.empty()) return;
  const auto at = [&] { return static_cast<int>(dice_.below(static_cast<size_t>(nodes.size()))); };
  switch (dice_.below(3)) {
    case 0:
      nodes.DeleteSubrange(at(), 1);
      break;
    case 1:
      nodes.SwapElements(at(), at());
      break;
    default: {
      const pb::NodeProto copy = nodes[at()];
      pb::NodeProto& added = *nodes.Add();
      added = copy;
      for (int i = 0; i < added.output_size(); ++i) added.set_output(i, "copy" + std::to_string(dice_.below(99)));
    }
  }
}

void Mutator::change_type() {
  pb::GraphProto& graph = any_graph();
  pb::ValueInfoProto* info = any_of(dice_.below(3) > 0 ? graph.mutable_input() : graph.mutable_output(), dice_);
  if (info == nullptr) return;
  auto& type = *info->mutable_type()->mutable_tensor_type();
  auto& dims = *type.mutable_shape()->mutable_dim();
  switch (dice_.below(4)) {
    case 0:
      type.set_elem_type(static_cast<int>(dice_.below(26)));
      break;
    case 1:
      dims.Add()->set_dim_value(absurd_integer(dice_));
      break;
    case 2:
      if (!dims.empty()) dims.RemoveLast();
      break;
    default:
      if (auto* dim = any_of(&dims, dice_)) {
        if (dice_.below(3) == 0) dim->set_dim_param(dice_.below(2) == 0 ? "N" : "T");
        else dim->set_dim_value(dice_.below(2) == 0 ? static_cast<int64_t>(dice_.below(9)) : absurd_integer(dice_));
      }
  }
}

void Mutator::change_tensor() {
  pb::TensorProto* tensor = any_of(any_graph().mutable_initializer(), dice_);
  if (tensor == nullptr) return;
  switch (dice_.below(4)) {
    case 0:
      tensor->set_data_type(static_cast<int>(dice_.below(26)));
      break;
    case 1:
      if (tensor->dims_size() > 0)
        tensor->set_dims(static_cast<int>(dice_.below(static_cast<size_t>(tensor->dims_size()))),
                         absurd_integer(dice_));
      break;
    case 2:
      tensor->clear_raw_data();
      tensor->clear_float_data();
      tensor->clear_dims();
      tensor->set_data_type(pb::TensorProto::INT64);
      tensor->add_dims(3);
      for (int i = 0; i < 3; ++i) tensor->add_int64_data(absurd_integer(dice_));
      break;
    default:
      if (tensor->dims_size() > 0) tensor->mutable_dims()->RemoveLast();
  }
}

void Mutator::change_interface() {
  pb::GraphProto& graph = any_graph();
  switch (dice_.below(5)) {
    case 0:
      model_.mutable_opset_import(0)->set_version(static_cast<int64_t>(1 + dice_.below(27)));
      break;
    case 1:
      if (graph.output_size() > 0) graph.mutable_output(0)->set_name(any_name());
      break;
    case 2:
      graph.add_output()->set_name(any_name());
      break;
    case 3:
      if (graph.input_size() > 0) graph.mutable_input()->RemoveLast();
      break;
    default:
      graph.add_input()->set_name(any_name());
  }
}

// A node moves into the branches of an If.
void Mutator::wrap(Nodes& nodes) {
  pb::NodeProto* node = any_of(&nodes, dice_);
  if (node == nullptr || node->output_size() == 0) return;
  pb::NodeProto choice;
  choice.set_op_type("If");
  choice.add_input(any_name());
  for (const char* name : {"then_branch", "else_branch"}) {
    pb::AttributeProto& branch = *choice.add_attribute();
    branch.set_name(name);
    branch.set_type(pb::AttributeProto::GRAPH);
    branch.mutable_g()->set_name(name);
    pb::NodeProto& inner = *branch.mutable_g()->add_node();
    inner = *node;
    for (int i = 0; i < inner.output_size(); ++i) {
      inner.set_output(i, name + inner.output(i));
      branch.mutable_g()->add_output()->set_name(inner.output(i));
    }
  }
  *choice.mutable_output() = node->output();
  *node = choice;
}

void Mutator::splice(Nodes& nodes) {
  static const std::vector<std::string> kSeeds = onnx_seeds();
  pb::ModelProto other;
  if (!other.ParseFromString(kSeeds[dice_.below(kSeeds.size())])) return;
  if (const auto* node = any_of(other.mutable_graph()->mutable_node(), dice_)) *nodes.Add() = *node;
  if (const auto* tensor = any_of(other.mutable_graph()->mutable_initializer(), dice_))
    *any_graph().add_initializer() = *tensor;
}

void Mutator::change() {
  Nodes& nodes = any_nodes();
  pb::NodeProto* node = any_of(&nodes, dice_);
  switch (dice_.below(12)) {
    case 0:
      return move_nodes(nodes);
    case 1:
      return change_type();
    case 2:
      return change_tensor();
    case 3:
      return change_interface();
    case 4:
      return dice_.below(3) == 0 ? wrap(nodes) : splice(nodes);
    case 5:
    case 6:
      if (node != nullptr) change_operator(*node);
      return;
    case 7:
    case 8:
    case 9:
      if (node != nullptr) change_attribute(*node);
      return;
    default:
      if (node != nullptr) change_operands(*node);
  }
}

// `lint` and `plan` up to the search. With GRAPHPIPE_FUZZ_IN_PROCESS set, ONNX's library runs in this process: its
// crashes show what check_nodes could refuse by name.
void run_onnx(std::string_view input) {
  static const bool kInProcess = std::getenv("GRAPHPIPE_FUZZ_IN_PROCESS") != nullptr;
  exercise_model(input, kInProcess ? frontend::Isolation::kNone : frontend::Isolation::kSharedProcess);
}

// Small models of every family of operators, with local functions, bodies of If and a Loop, and one exported model.
std::vector<std::string> onnx_seeds() {
  const std::string header = "<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"test\">\n";
  std::vector<std::string> seeds;
  for (const std::string body : kSeedTexts) {
    pb::ModelProto model;
    const auto status = pb::OnnxParser::Parse(model, (body.front() == '<' ? body : header + body).c_str());
    GP_CHECK(status.IsOK());
    note_calls(*model.mutable_graph());
    seeds.push_back(model.SerializeAsString());
  }
  if (std::string exported = exported_model(); !exported.empty()) seeds.push_back(std::move(exported));
  return seeds;
}

// Another model: nodes, operands, attributes, types, shapes, functions and bodies are changed, moved, copied from other
// seeds. Input that is no model comes back as it is.
std::string mutate_onnx(std::string_view input, Dice& dice) {
  pb::ModelProto model;
  if (!model.ParseFromArray(input.data(), static_cast<int>(input.size())) || !model.has_graph() ||
      model.opset_import_size() == 0)
    return std::string(input);
  // Changes move nodes about, and with them what the mutator has found.
  const size_t max_changes = dice.below(4) == 0 ? 16 : 4;
  for (size_t changes = 1 + dice.below(max_changes); changes > 0; --changes) Mutator(model, dice).change();
  return model.SerializeAsString();
}

}  // namespace

FuzzTarget fuzz_onnx() {
  return {"onnx", run_onnx, onnx_seeds, {"Identity", "If", "axis", "\xff\xff\xff\xff\x0f", "N"}, mutate_onnx};
}

}  // namespace graphpipe::tests
