#include "driver/pipeline/scope_notes.h"

#include <algorithm>

#include "ops/op_def.h"

namespace graphpipe::driver {
namespace {

using ir::SampleScope;

bool has_statistics(const ir::Graph& graph, const ir::Node& node) {
  const ops::OpDef* def = ops::find_op(node.op);
  return def != nullptr && def->mixes_samples != nullptr && def->mixes_samples(ops::NodeView(graph, node));
}

// Whether the node itself compares samples, rather than reading values in which samples are already mixed.
bool starts_comparing(const ir::Graph& graph, const ir::Node& node) {
  const auto is = [&](ir::ValueId id, ir::BatchKind kind) { return id.valid() && graph.value(id).batch == kind; };
  return std::ranges::any_of(node.inputs, [&](ir::ValueId id) { return is(id, ir::BatchKind::kAxis); }) &&
         std::ranges::any_of(node.outputs, [&](ir::ValueId id) { return is(id, ir::BatchKind::kMixed); });
}

/// Nodes of one kind: the first, and how many there are.
struct Found {
  const ir::PlanNode* first = nullptr;
  const ir::Node* node = nullptr;
  size_t count = 0;

  void add(const ir::PlanNode& plan_node, const ir::Node& of) {
    if (count++ > 0) return;
    first = &plan_node;
    node = &of;
  }
  std::string name() const { return count == 1 ? node->op : text(count, " nodes such as ", node->op); }
  std::string verb(std::string_view one, std::string_view many) const { return std::string(count == 1 ? one : many); }
};

Diagnostic note(const Found& found, std::string message, std::string hint) {
  return {.code = Code::kMixesSamples,
          .severity = Severity::kNote,
          .origin = found.first->label,
          .message = std::move(message),
          .hint = std::move(hint)};
}

// Whether a loss that sees the whole batch does so only because other labels may count in some of its terms.
bool depends_on_counts(const ir::Graph& graph) {
  const cost::ScopeChoice choice{.statistics = SampleScope::kEach, .all_labels_count = true};
  const cost::SampleScopes scopes = cost::sample_scopes(graph, choice);
  return std::ranges::all_of(scopes.scope, [](SampleScope scope) { return scope == SampleScope::kEach; });
}

Diagnostic comparing_note(const Found& found, Samples batch, const ir::Graph& graph) {
  const std::string what = text(found.name(), found.verb(" takes", " take"));
  if (found.first->scope == SampleScope::kBatch && depends_on_counts(graph))
    return note(found,
                text(what, " all ", batch,
                     " samples of the batch together, since labels may be ignored that not all terms of the loss have: "
                     "the stage runs once per step, between all forwards and all backwards of the others"),
                "where no label of the data is ignored, --contrastive micro-batch trains the same loss in a pipeline; "
                "else it is another one (docs/semantics.md, section 4)");
  if (found.first->scope == SampleScope::kBatch)
    return note(found, text(what, " all ", batch, " samples of the batch together: the stage runs once per step"),
                "with --contrastive micro-batch it would be those of a micro-batch only, which is another loss "
                "(docs/semantics.md, section 4)");
  return note(found, text(what, " the samples of one micro-batch together"),
              "its result depends on --micro-batch, and its stage has one replica");
}

Diagnostic statistics_note(const Found& found, Samples batch, const ir::StageGraph* stages) {
  const std::string what = text(found.name(), found.verb(" uses", " use"));
  if (found.first->scope != SampleScope::kBatch)
    return note(found, text(what, " the statistics of each micro-batch"),
                "the result depends on --micro-batch; replicas may divide one and exchange their sums");
  const auto is_whole = [](const ir::Stage& stage) { return stage.scope == SampleScope::kBatch; };
  const bool nothing_left = stages != nullptr && std::ranges::all_of(stages->stages, is_whole);
  return note(
      found,
      text(what, " the statistics of all ", batch, " samples of the batch: ",
           nothing_left ? "every stage holds one, so nothing is pipelined"
                        : "a stage that holds one runs once per step"),
      "replicas may divide the batch and exchange its sums; --batchnorm micro-batch trains with the statistics of each "
      "micro-batch, in a pipeline");
}

}  // namespace

cost::ScopeChoice scopes_of(const ir::ModelSpec& spec) {
  if (spec.one_sample) return {.losses = SampleScope::kMicroBatch, .statistics = SampleScope::kMicroBatch};
  const bool each = spec.batch_norm == ir::BatchNormMode::kMicroBatch;
  return {.losses = spec.contrastive, .statistics = each ? SampleScope::kMicroBatch : SampleScope::kBatch};
}

Diagnostics scope_notes(const ir::Graph& graph, const ir::PlanGraph& priced, const ir::StageGraph* stages) {
  if (priced.one_sample) return {};  // a micro-batch is one sample, so no node works on several
  Found comparing, statistics;
  for (const ir::PlanNode& plan_node : priced.nodes) {
    if (plan_node.scope == SampleScope::kEach) continue;
    const ir::Node& node = graph.node(plan_node.source);
    if (has_statistics(graph, node)) statistics.add(plan_node, node);
    else if (starts_comparing(graph, node)) comparing.add(plan_node, node);
  }
  Diagnostics notes;
  if (comparing.count > 0) notes.push_back(comparing_note(comparing, priced.batch, graph));
  if (statistics.count > 0) notes.push_back(statistics_note(statistics, priced.batch, stages));
  return notes;
}

}  // namespace graphpipe::driver
