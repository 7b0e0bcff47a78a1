#pragma once
// What planners see: nodes and values with costs, weight groups, flags. Nothing about operators: a priced ONNX
// model and an imported profile are the same thing here.

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/sample_function.h"
#include "ir/types.h"
#include "support/result.h"
#include "support/text.h"

namespace graphpipe::ir {

using PlanNodeId = Id<struct PlanNodeTag>;
using PlanValueId = Id<struct PlanValueTag>;
using WeightGroupId = Id<struct WeightGroupTag>;

/// One parameter with all its uses, ties included (docs/semantics.md, section 3).
struct WeightGroup {
  Bytes bytes;
  bool trainable = true;
  ModelText name;
  /// Of a table whose updates change nothing but the rows that were looked up: bytes of those of one sample, at most.
  /// 0: an update passes over all of it.
  Bytes row_bytes{};
  /// Bytes of memory traffic of an update per byte that it passes over: 3 of plain SGD, which reads the weight and its
  /// gradient and writes the weight.
  double update_passes = 3;
  /// Floating-point operations of an update, where the optimizer multiplies matrices.
  double update_flops = 0;
  /// What an update takes for itself while it runs.
  Bytes update_scratch{};
  bool operator==(const WeightGroup&) const = default;
};

/// What an update passes over of weights with so many copies, in stages and their replicas. One by rows reads and
/// writes each row twice: they are gathered, changed and put back.
Bytes updated_bytes(const WeightGroup& weights, size_t copies, Samples batch);

/// How many times as long an exchange between so many replicas (PlanNode::exchange_seconds) takes as one between two.
/// An estimate: as if those that have the sums doubled with every round.
double exchange_rounds(size_t replicas);

/// Which samples a node works on together (docs/semantics.md, section 1).
enum class SampleScope : uint8_t {
  kEach,        // each alone, or a sum over samples: micro-batches and replicas divide them as they like
  kMicroBatch,  // those of one micro-batch
  kBatch,       // all of a step: the batch is the only micro-batch of its stage
};
/// "each", "micro-batch", "batch".
std::string_view sample_scope_name(SampleScope scope);
std::optional<SampleScope> sample_scope_of_name(std::string_view name);

/// How the stages of a plan wait for each other (docs/semantics.md, section 1).
enum class Execution : uint8_t {
  kGraph,  // a stage waits for those that it reads from: branches run side by side
  kChain,  // the stages stand in a line; what a stage reads from further above passes through all between
};
/// "graph", "chain".
std::string_view execution_name(Execution execution);
std::optional<Execution> execution_of_name(std::string_view name);

/// How many versions of its trained weights each replica of a stage holds at once (docs/schedules.md, section 3).
enum class WeightVersions : uint8_t {
  kOne,      // weights change while nothing is in flight
  kTwo,      // what is in flight began with the weights or with those before
  kPerItem,  // each item in flight began with weights of its own
  /// As many as the stage with the most in flight holds: what is in flight has weights of one age everywhere.
  kPerItemOfFirst,
};

/// Seconds of the three passes for n samples. Zero where a pass does not exist (frozen parts).
struct PassSeconds {
  SampleFunction forward, input_gradient, weight_gradient;
  double total(double samples) const {
    return forward.at(samples) + (input_gradient.at(samples) + weight_gradient.at(samples));
  }
  double total(Samples samples) const { return total(static_cast<double>(samples.count)); }
  void add_seconds(const PassSeconds& other) {
    forward += other.forward;
    input_gradient += other.input_gradient;
    weight_gradient += other.weight_gradient;
  }
  bool operator==(const PassSeconds&) const = default;
};

/// One way to execute a node: `degree` devices share it (tensor parallelism), in one of a few variants (plain ones,
/// then those that recompute). All numbers are those of one of the devices, for one micro-batch of one sample where not
/// said otherwise.
struct NodeAlternative {
  int degree = 1;
  ModelText name;
  /// The collectives inside of the node included.
  PassSeconds seconds;
  /// Bytes that replicas have to synchronise.
  double weight_bytes = 0;
  /// Bytes that each micro-batch in flight keeps, and bytes whatever is in flight: weights and their states included.
  double kept_bytes = 0, fixed_bytes = 0;
  /// Bytes that a collective moves where the edge to a neighbour is cut.
  struct Boundary {
    PlanNodeId neighbour;
    double bytes = 0;
    bool operator==(const Boundary&) const = default;
  };
  /// By predecessor and by successor, each once; absent: none.
  std::vector<Boundary> from, to;
  bool operator==(const NodeAlternative&) const = default;
};

/// One forward node that depends on the samples, with its backward. Computations on weights alone are not nodes:
/// every stage that needs one repeats it, and their cost is in the nodes that read them.
///
/// Its seconds are those of one replica. Where devices differ they are no less than those of any device; in a profile
/// with CPUs they are those of an accelerator.
struct PlanNode : PassSeconds {
  /// The operator node it prices, where there is an operator graph.
  NodeId source;
  /// What people call it: the ONNX name or the profile's id; and what the profile says of it beside.
  ModelText label, description;
  /// The seconds on each kind of device (PlanGraph::kind_of_device); empty where all are alike.
  std::vector<PassSeconds> by_kind;
  /// Kinds of devices that cannot run it, ascending.
  std::vector<int> refused_kinds;
  /// Other ways to execute it, by degree; the first of the smallest degree is the node as it stands. Empty: only that.
  std::vector<NodeAlternative> alternatives;
  /// Bytes that only this node keeps, beside the values that PlanValue's saved_by lists name (statistics, masks; all of
  /// the stash in an imported profile): from the forward until the input gradient has run, and from the input gradient
  /// until the weight gradient has run (then with the gradients that the weight gradient reads).
  SampleFunction stash_to_input_gradient, stash_to_weight_gradient;
  /// The gradients in stash_to_weight_gradient: they come to be while the input gradients of the stage run.
  SampleFunction kept_gradients;
  /// Largest extra bytes while it runs.
  SampleFunction workspace;
  /// State that is neither weight nor activation: buffers.
  Bytes buffer_bytes;
  std::vector<WeightGroupId> weights;
  /// Whether any backward work exists here.
  bool has_backward = true;
  SampleScope scope = SampleScope::kEach;
  /// Where `scope` is not kEach: whether replicas may divide the samples and exchange their sums over them, as those of
  /// a BatchNorm may. Otherwise its stage has one replica.
  bool sums_over_replicas = false;
  /// Seconds that two replicas take for such an exchange over the outermost links: a forward has one, and so has an
  /// input gradient.
  double exchange_seconds = 0;
  /// Samples that it needs together: with fewer nothing is learned (a contrastive loss of one sample is constant).
  /// Above 1 only where `scope` is not kEach.
  int64_t fewest_samples = 1;
  /// The backward half of another node of its colocated set, listed as a node of its own (profiles of training graphs).
  /// Such graphs have no stage graph before cost::fold_backward.
  bool is_backward = false;
  /// Seconds in which all that it puts out moves between a device and host memory, where a profile measured that.
  SampleFunction host_transfer;
  bool may_have_replicas() const { return scope == SampleScope::kEach || sums_over_replicas; }
  bool operator==(const PlanNode&) const = default;
};

/// A tensor with one producer and its readers.
struct PlanValue {
  /// The operator value it prices, where there is an operator graph.
  ValueId source;
  PlanNodeId producer;
  /// Ascending, each once, never the producer.
  std::vector<PlanNodeId> readers;
  SampleFunction bytes;
  /// Bytes of one gradient tensor of it; zero where none flows back.
  SampleFunction gradient_bytes;
  /// Readers that send a gradient tensor back, ascending; one that reads it through two slots is listed twice.
  /// Empty where none flows back.
  std::vector<PlanNodeId> gradient_readers;
  /// Nodes whose input gradient (weight gradient) reads the value again: it is kept in their stages, once per stage
  /// however many of a stage's nodes keep it. Ascending, each once; the producer may be among them.
  std::vector<PlanNodeId> saved_by_input_gradient, saved_by_weight_gradient;
  /// kMixed: a stage edge that carries it needs equal micro-batches and one replica on both sides.
  BatchKind batch = BatchKind::kAxis;
  bool operator==(const PlanValue&) const = default;
};

/// The order in which a file lists nodes, and edges between them; it need not be topological. Planners that reproduce
/// other programs break ties by it.
struct FileOrder {
  std::vector<PlanNodeId> nodes;
  std::vector<std::pair<PlanNodeId, PlanNodeId>> edges;
  bool operator==(const FileOrder&) const = default;
};

/// Invariants: acyclic with node ids in topological order (producer id < reader id); ids dense; functions total
/// and non-negative. `verify_plan_graph` states them.
class PlanGraph {
 public:
  IdMap<PlanNodeId, PlanNode> nodes;
  IdMap<PlanValueId, PlanValue> values;
  IdMap<WeightGroupId, WeightGroup> weight_groups;
  /// Sets of nodes that must share a stage.
  std::vector<std::vector<PlanNodeId>> colocated;
  /// Samples of one step, B.
  Samples batch{1};
  /// Bytes of optimizer state per byte of trainable weight: 0 plain SGD, 1 momentum, 2 AdamW.
  double optimizer_state_per_weight_byte = 0;
  /// Of every plan that is made of it.
  Execution execution = Execution::kGraph;
  WeightVersions versions = WeightVersions::kOne;
  /// Every micro-batch of every plan is one sample: the model computes no other.
  bool one_sample = false;
  /// By number of the device its kind, from 0, where devices differ in speed; empty where all are alike. Of a profile
  /// 0 is an accelerator, 1 a CPU.
  std::vector<int> kind_of_device;
  /// Empty where the graph does not come from a file.
  FileOrder file_order;

  IdRange<PlanNodeId> node_ids() const { return ids<PlanNodeId>(nodes.size()); }
  IdRange<PlanValueId> value_ids() const { return ids<PlanValueId>(values.size()); }
  /// The widest scope of these nodes: that of a stage that holds them.
  SampleScope scope_of(std::span<const PlanNodeId> of) const;
  /// Whether some node works on the whole batch.
  bool has_batch_scope() const;
  /// Kinds of devices; 0 where all are alike.
  int kind_count() const;
  /// Seconds of a node on the device with this number.
  PassSeconds seconds_on(const PlanNode& node, size_t device) const;
  /// Distinct producers a node reads from / readers of its values, ascending.
  std::vector<PlanNodeId> predecessors(PlanNodeId node) const;
  std::vector<PlanNodeId> successors(PlanNodeId node) const;
  bool operator==(const PlanGraph&) const = default;
};

/// For each node its predecessors (and successors), ascending: the adjacency planners work on.
struct PlanAdjacency {
  IdMap<PlanNodeId, std::vector<PlanNodeId>> predecessors, successors;
};
PlanAdjacency adjacency_of(const PlanGraph& graph);

/// Checks the invariants above, that all ids exist and that lists are sorted. Reports every problem found
/// (kBadProfile), because a plan graph that breaks them came from a profile that was imported.
Status verify_plan_graph(const PlanGraph& graph);

}  // namespace graphpipe::ir
