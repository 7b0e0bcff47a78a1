#include "cost/price.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cost/op_prices.h"
#include "cost/sample_scopes.h"
#include "cost/transients.h"
#include "ops/looked_up_tables.h"
#include "ops/op_def.h"
#include "support/integer_math.h"
#include "support/sort_unique.h"

namespace graphpipe::cost {

namespace {

using ir::BatchKind;
using ir::NodeId;
using ir::ParamId;
using ir::Phase;
using ir::PlanNodeId;
using ir::PlanValueId;
using ir::SampleFunction;
using ir::ValueId;

/// The function divided by `parts`.
SampleFunction share(const SampleFunction& f, double parts) {
  if (!f.is_table()) return SampleFunction::polynomial(f.constant() / parts, f.linear() / parts, f.quadratic() / parts);
  std::vector<SampleFunction::Point> points = f.points();
  for (auto& point : points) point.value /= parts;
  return SampleFunction::table(std::move(points));
}

class Pricer {
 public:
  Pricer(const ir::Graph& graph, const ir::Cluster& cluster, const PriceRequest& request)
      : graph_(graph),
        cluster_(cluster),
        request_(request),
        prices_(graph, cluster, request),
        param_of_(ir::params_of_values(graph)),
        tables_(ops::looked_up_tables(graph)),
        plan_node_of_(graph.node_count()),
        plan_value_of_(graph.value_count()),
        readers_of_constant_(graph.node_count()),
        phases_(graph.node_count(), 0u) {
    find_phases();
  }

  Result<ir::PlanGraph> run() {
    GP_TRY_VOID(check_operators());
    transients_ = transient_bytes(graph_, request_.batch);
    result_.batch = request_.batch;
    result_.execution = request_.execution;
    result_.one_sample = request_.one_sample;
    result_.optimizer_state_per_weight_byte = request_.optimizer_state_per_weight_byte;
    for (NodeId id : graph_.node_ids())
      if (graph_.node(id).phase == Phase::kForward && depends_on_samples(id)) add_node(id);
    for (NodeId id : graph_.node_ids())
      if (plan_node_of_[id].valid()) add_inputs(id);
    GP_TRY_VOID(add_times());
    for (NodeId id : graph_.node_ids()) add_saved(id);
    for (ir::PlanValue& value : result_.values) finish_value(value);
    GP_TRY_VOID(set_scopes());
    return std::move(result_);
  }

 private:
  Status check_operators() {
    Diagnostics problems;
    for (NodeId id : graph_.node_ids())
      if (ops::find_op(graph_.node(id).op) == nullptr)
        problems.push_back({.code = Code::kUnsupportedOp,
                            .origin = origin_of(id),
                            .message = text("no price for operator ", quoted(ModelText(graph_.node(id).op))),
                            .hint = "run `graphpipe lint` to see every such node at once"});
    if (problems.empty()) return Ok{};
    return problems;
  }

  ModelText origin_of(NodeId id) const {
    const auto& origins = graph_.node(id).origins;
    return origins.empty() ? ModelText(text(graph_.node(id).op, "_n", id)) : origins.front();
  }

  bool depends_on_samples(NodeId id) const {
    const auto& outputs = graph_.node(id).outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](ValueId v) { return graph_.value(v).batch != BatchKind::kNone; });
  }

  void add_node(NodeId id) {
    ir::PlanNode node;
    node.source = id;
    node.label = origin_of(id);
    node.has_backward = false;
    plan_node_of_[id] = result_.nodes.push_back(std::move(node));
    for (ValueId output : graph_.node(id).outputs) {
      ir::PlanValue value;
      value.source = output;
      value.producer = plan_node_of_[id];
      value.batch = graph_.value(output).batch;
      value.bytes = byte_function(graph_.value(output).type, request_.batch);
      plan_value_of_[output] = result_.values.push_back(std::move(value));
    }
  }

  /// Registers the node as a reader of its inputs, and through computations on weights of the parameters behind them.
  void add_inputs(NodeId id) {
    const PlanNodeId reader = plan_node_of_[id];
    std::vector<NodeId> pending{id};
    IdSet<NodeId> seen(graph_.node_count());
    while (!pending.empty()) {
      const NodeId at = pending.back();
      pending.pop_back();
      for (ValueId input : graph_.node(at).inputs) {
        if (!input.valid()) continue;
        if (param_of_[input].valid()) add_param(reader, param_of_[input]);
        if (plan_value_of_[input].valid()) result_.values[plan_value_of_[input]].readers.push_back(reader);
        const NodeId producer = graph_.value(input).producer;
        if (!producer.valid() || plan_node_of_[producer].valid() || !seen.insert(producer)) continue;
        readers_of_constant_[producer].push_back(reader);
        pending.push_back(producer);
      }
    }
  }

  void add_param(PlanNodeId reader, ParamId id) {
    const ir::Param& param = graph_.param(id);
    const Bytes bytes = ir::byte_size(graph_.value(param.value).type, Samples(1));
    if (param.kind == ir::ParamKind::kBuffer) {
      if (seen_buffers_.insert({reader, id}).second) result_.nodes[reader].buffer_bytes += bytes;
      return;
    }
    if (group_of_.empty()) group_of_.resize(graph_.param_count());
    if (!group_of_[id].valid()) group_of_[id] = result_.weight_groups.push_back(group_of(param, bytes));
    auto& weights = result_.nodes[reader].weights;
    if (std::find(weights.begin(), weights.end(), group_of_[id]) == weights.end()) weights.push_back(group_of_[id]);
  }

  ir::WeightGroup group_of(const ir::Param& param, Bytes bytes) const {
    const Bytes rows = looked_up_bytes(param);
    ir::WeightGroup group = {.bytes = bytes,
                             .trainable = param.trainable,
                             .name = param.name,
                             .row_bytes = request_.updates_rows ? rows : Bytes(0)};
    if (!param.trainable || request_.optimizer == nullptr) return group;
    const ir::TensorType& type = graph_.value(param.value).type;
    // As the runtime has it: of a tied one the head's product reads all rows.
    const bool is_table = tables_.contains(param.value), is_matrix = !is_table && type.shape.size() == 2;
    const wire::UpdatePasses& passes = request_.optimizer->passes;
    // Of weights of 16 bits it passes over main weights and state of 32.
    group.update_passes = (ir::bytes_per_element(type.dtype) == 2 ? 2 : 1) * (is_table    ? passes.table
                                                                              : is_matrix ? passes.matrix
                                                                                          : passes.other);
    if (is_matrix)
      group.update_flops = wire::update_flops(*request_.optimizer, type.shape[0].factor, type.shape[1].factor);
    const int64_t element = ir::bytes_per_element(type.dtype), table = is_table || is_matrix ? type.shape[0].factor : 0;
    wire::UpdatedWeight weight = {.elements = bytes.count / element,
                                  .element = Bytes(element),
                                  .rows = table,
                                  .columns = table > 0 ? bytes.count / element / table : 0,
                                  .is_table = is_table};
    if (const Bytes row = weight.columns * weight.element; group.row_bytes > Bytes(0) && row > Bytes(0) && element > 2)
      weight.gathered_rows = std::min(table, ceil_div(rows.count * request_.batch.count, row.count));
    group.update_scratch = wire::update_scratch(*request_.optimizer, weight);
    return group;
  }

  /// Bytes of the rows that one sample looks up, if look-ups are the parameter's only readers; otherwise 0.
  Bytes looked_up_bytes(const ir::Param& param) const {
    Bytes bytes{};
    for (const NodeId id : graph_.node_ids()) {
      const ir::Node& node = graph_.node(id);
      if (std::ranges::find(node.inputs, param.value) == node.inputs.end()) continue;
      if (!ops::looks_up_rows({graph_, node})) return Bytes(0);
      bytes += ir::byte_size(graph_.value(node.outputs.front()).type, Samples(1));
    }
    return bytes;
  }

  /// The plan nodes that an operator node's cost is charged to: its own, that of the node it serves, or those that read
  /// the result of a computation on weights.
  std::vector<PlanNodeId> payers(NodeId id) const {
    const ir::Node& node = graph_.node(id);
    const NodeId served = node.phase == Phase::kForward ? id : node.serves;
    if (!served.valid()) return {};
    if (plan_node_of_[served].valid()) return {plan_node_of_[served]};
    return readers_of_constant_[served];
  }

  Status add_times() {
    Diagnostics missing;
    for (NodeId id : graph_.node_ids()) {
      const ir::Node& node = graph_.node(id);
      const std::vector<PlanNodeId> nodes = payers(id);
      for (PlanNodeId payer : nodes) {
        ir::PlanNode& pays = result_.nodes[payer];
        if (node.phase != Phase::kForward) pays.has_backward = true;
        pays.workspace = SampleFunction::larger(pays.workspace, transients_[id]);
        if (request_.profile != nullptr) continue;
        const SampleFunction seconds = share(prices_.analytic(id), static_cast<double>(nodes.size()));
        if (node.phase == Phase::kForward) pays.forward += seconds;
        if (node.phase == Phase::kInputGradient) pays.input_gradient += seconds;
        if (node.phase == Phase::kWeightGradient) pays.weight_gradient += seconds;
      }
      if (request_.profile != nullptr && node.phase == Phase::kForward) add_measured(id, nodes, missing);
    }
    if (missing.empty()) return Ok{};
    return missing;
  }

  bool has_phase(NodeId served, Phase phase) const { return phases_[served] >> static_cast<int>(phase) & 1; }

  void find_phases() {
    for (NodeId id : graph_.node_ids())
      if (const ir::Node& node = graph_.node(id); node.serves.valid())
        phases_[node.serves] |= 1u << static_cast<int>(node.phase);
  }

  void add_measured(NodeId id, const std::vector<PlanNodeId>& nodes, Diagnostics& missing) {
    const ir::PassSeconds* seconds = prices_.measured(id);
    if (seconds == nullptr) {
      missing.push_back({.code = Code::kBadProfile,
                         .origin = origin_of(id),
                         .message = text("the profile has no measurement of ", graph_.node(id).op, " at these shapes"),
                         .hint = "make the profile again from this model"});
      return;
    }
    const double parts = static_cast<double>(nodes.size());
    for (PlanNodeId payer : nodes) {
      ir::PlanNode& pays = result_.nodes[payer];
      pays.forward += share(seconds->forward, parts);
      // Nodes with one signature may differ in their backward: the first layer of a model has no input gradient.
      if (has_phase(id, Phase::kInputGradient)) pays.input_gradient += share(seconds->input_gradient, parts);
      if (has_phase(id, Phase::kWeightGradient)) pays.weight_gradient += share(seconds->weight_gradient, parts);
    }
  }

  bool is_gradient(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer.valid() && graph_.node(producer).phase != Phase::kForward;
  }

  /// The plan node that a gradient node serves keeps what the gradient node reads.
  void add_saved(NodeId id) {
    const ir::Node& node = graph_.node(id);
    if (node.phase == Phase::kForward) return;
    const bool by_weight = node.phase == Phase::kWeightGradient;
    for (PlanNodeId keeper : payers(id))
      for (ValueId input : node.inputs)
        if (input.valid()) add_saved(keeper, memory_of_value(graph_, input), by_weight);
  }

  void add_saved(PlanNodeId id, ValueId value, bool by_weight) {
    ir::PlanNode& keeper = result_.nodes[id];
    const ir::Value& saved = graph_.value(value);
    if (is_gradient(value)) {
      // A weight gradient may run later than the input gradient: the gradient that it reads is kept until then.
      if (!by_weight || is_weight_phase(value) || !kept_.insert({id, value}).second) return;
      keeper.stash_to_weight_gradient += byte_function(saved.type, request_.batch);
      keeper.kept_gradients += byte_function(saved.type, request_.batch);
    } else if (plan_value_of_[value].valid()) {
      ir::PlanValue& priced = result_.values[plan_value_of_[value]];
      (by_weight ? priced.saved_by_weight_gradient : priced.saved_by_input_gradient).push_back(id);
    } else if (!saved.producer.valid() && !param_of_[value].valid() && saved.batch != BatchKind::kNone) {
      // Input data stays until its last reader. Parameters and what is computed from them are not part of the stash.
      if (kept_.insert({id, value}).second) keeper.stash_to_input_gradient += byte_function(saved.type, request_.batch);
      if (by_weight && kept_for_weight_.insert({id, value}).second)
        keeper.stash_to_weight_gradient += byte_function(saved.type, request_.batch);
    }
  }

  bool is_weight_phase(ValueId value) const {
    return graph_.node(graph_.value(value).producer).phase == Phase::kWeightGradient;
  }

  void finish_value(ir::PlanValue& value) {
    sort_unique(value.readers);
    sort_unique(value.saved_by_input_gradient);
    sort_unique(value.saved_by_weight_gradient);
    if (graph_.gradient_of().empty() || !graph_.gradient_of()[value.source].valid()) return;
    add_gradient_readers(value, graph_.gradient_of()[value.source]);
    if (value.gradient_readers.empty()) return;
    std::sort(value.gradient_readers.begin(), value.gradient_readers.end());
    value.gradient_bytes = value.bytes;
  }

  /// Walks back from the whole gradient through the sums over readers (Node::sums_gradient_of). Each contribution is a
  /// node of its own, which serves the reader that it comes from.
  void add_gradient_readers(ir::PlanValue& value, ValueId gradient) {
    std::vector<ValueId> pending{gradient};
    while (!pending.empty()) {
      const NodeId producer = graph_.value(pending.back()).producer;
      pending.pop_back();
      if (!producer.valid()) continue;
      const ir::Node& node = graph_.node(producer);
      if (node.sums_gradient_of == value.source) {
        for (ValueId input : node.inputs) pending.push_back(input);
        continue;
      }
      if (!node.serves.valid() || !plan_node_of_[node.serves].valid()) continue;
      const PlanNodeId reader = plan_node_of_[node.serves];
      if (std::binary_search(value.readers.begin(), value.readers.end(), reader))
        value.gradient_readers.push_back(reader);
    }
  }

  /// Sets the scopes of nodes that work on samples together, and colocates the nodes whose values add up to the loss,
  /// because the values that they exchange have no batch axis. Errors (kUntrainable): a batch from which a node learns
  /// nothing.
  Status set_scopes() {
    const SampleScopes scopes = sample_scopes(graph_, request_.scopes);
    Diagnostics problems;
    for (PlanNodeId id : result_.node_ids()) {
      ir::PlanNode& node = result_.nodes[id];
      node.scope = scopes.scope[node.source];
      node.sums_over_replicas = scopes.sums_over_replicas[node.source];
      if (node.sums_over_replicas && !cluster_.levels.empty())
        node.exchange_seconds = cluster_.levels.back().latency.count;
      node.fewest_samples = scopes.fewest[node.source];
      if (node.fewest_samples <= request_.batch.count) continue;
      problems.push_back({.code = Code::kUntrainable,
                          .origin = node.label,
                          .message = text(graph_.node(node.source).op, " learns nothing from fewer than ",
                                          node.fewest_samples, " samples, and the batch has ", request_.batch),
                          .hint = text("pass a --batch of at least ", node.fewest_samples)});
    }
    if (!problems.empty()) return problems;
    std::vector<PlanNodeId> additive;
    for (NodeId id : scopes.additive)
      if (plan_node_of_[id].valid()) additive.push_back(plan_node_of_[id]);
    if (additive.size() > 1) result_.colocated.push_back(std::move(additive));
    colocate_updates();
    return Ok{};
  }

  /// State that a step updates in place exists once per process, such as the statistics of a BatchNormalization that
  /// two branches apply: its readers stay together.
  void colocate_updates() {
    IdSet<ParamId> updated(graph_.param_count());
    for (const NodeId id : graph_.node_ids()) {
      const ir::Node& node = graph_.node(id);
      const ops::OpDef* entry = ops::find_op(node.op);
      if (entry == nullptr || entry->updates_inputs == nullptr) continue;
      const uint32_t mask = entry->updates_inputs(ops::NodeView(graph_, node));
      for (size_t i = 0; i < node.inputs.size() && i < 32; ++i)
        if ((mask >> i & 1) != 0 && node.inputs[i].valid() && param_of_[node.inputs[i]].valid())
          updated.insert(param_of_[node.inputs[i]]);
    }
    std::map<ParamId, std::vector<PlanNodeId>> readers;
    for (const auto& [reader, param] : seen_buffers_)
      if (updated.contains(param)) readers[param].push_back(reader);
    std::set<std::vector<PlanNodeId>> sets;
    for (const auto& [param, nodes] : readers)
      if (nodes.size() > 1 && sets.insert(nodes).second) result_.colocated.push_back(nodes);
  }

  const ir::Graph& graph_;
  const ir::Cluster& cluster_;
  const PriceRequest& request_;
  OpPrices prices_;
  const IdMap<ValueId, ParamId> param_of_;
  /// As the runtime updates them.
  const IdSet<ValueId> tables_;
  IdMap<NodeId, PlanNodeId> plan_node_of_;
  IdMap<ValueId, PlanValueId> plan_value_of_;
  /// For each computation on weights, the plan nodes that read its result.
  IdMap<NodeId, std::vector<PlanNodeId>> readers_of_constant_;
  /// For each forward node, the phases of the gradient nodes that serve it, as bits.
  IdMap<NodeId, unsigned> phases_;
  IdMap<NodeId, SampleFunction> transients_;
  IdMap<ParamId, ir::WeightGroupId> group_of_;
  std::set<std::pair<PlanNodeId, ParamId>> seen_buffers_;
  /// What each node keeps beside the plan's values, and the part of it that is kept until the weight gradient.
  std::set<std::pair<PlanNodeId, ValueId>> kept_, kept_for_weight_;
  ir::PlanGraph result_;
};

/// Further kinds of devices are assigned the costs of the slowest device.
constexpr size_t kMaxKinds = 16;

/// If devices differ in speed, prices the graph once for each kind.
Status add_kinds(const ir::Graph& graph, const ir::Cluster& cluster, const PriceRequest& request,
                 ir::PlanGraph& result) {
  std::vector<ir::Device> kinds;
  for (const ir::Device& device : cluster.devices) {
    const auto is_like = [&](const ir::Device& other) {
      const auto rates = [](const ir::Device& of) {
        return std::tuple(of.compute, of.convolution, of.winograd, of.depthwise, of.attention, of.functions,
                          of.bfloat16, of.float16, of.memory_bandwidth, of.weight_bandwidth, of.launch_overhead);
      };
      return rates(device) == rates(other);
    };
    const auto known = std::find_if(kinds.begin(), kinds.end(), is_like);
    result.kind_of_device.push_back(static_cast<int>(std::min<ptrdiff_t>(known - kinds.begin(), kMaxKinds)));
    if (known == kinds.end() && kinds.size() < kMaxKinds) kinds.push_back(device);
  }
  if (kinds.size() < 2) {
    result.kind_of_device.clear();
    return Ok{};
  }
  const bool any_beyond =
      *std::max_element(result.kind_of_device.begin(), result.kind_of_device.end()) == static_cast<int>(kMaxKinds);
  for (const ir::Device& kind : kinds) {
    ir::Cluster alone;
    alone.devices.push_back(kind);
    alone.levels = cluster.levels;
    GP_TRY(const ir::PlanGraph priced, Pricer(graph, alone, request).run());
    for (PlanNodeId id : result.node_ids()) result.nodes[id].by_kind.push_back(priced.nodes[id]);
  }
  if (any_beyond)
    for (ir::PlanNode& node : result.nodes) node.by_kind.push_back(node);
  return Ok{};
}

}  // namespace

Result<ir::PlanGraph> price(const ir::Graph& graph, const ir::Cluster& cluster, const PriceRequest& request) {
  GP_CHECK(request.batch.count >= 1);
  GP_TRY(ir::PlanGraph result, Pricer(graph, cluster, request).run());
  if (request.profile == nullptr) GP_TRY_VOID(add_kinds(graph, cluster, request, result));
  return result;
}

}  // namespace graphpipe::cost
