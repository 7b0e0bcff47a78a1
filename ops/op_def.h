#pragma once
// One operator, one entry. Shape inference, work, gradient, emitted code and tests all read the same entry.
//
// All functions are pure. Names: ONNX ops keep ONNX's name and meaning at the internal opset (kInternalOpset);
// ops that only gradients use are named <Op>Grad<What>.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "support/result.h"
#include "wire/id_bounds.h"
#include "wire/product_table.h"

namespace graphpipe::ops {

/// The ONNX opset whose meaning the entries have.
inline constexpr int kInternalOpset = 21;

/// A node with the values around it, as inference, pricing and emission see it.
class NodeView {
 public:
  NodeView(const ir::Graph& graph, const ir::Node& node) : graph_(&graph), node_(&node) {}
  const ir::Node& node() const { return *node_; }
  const ir::Attributes& attributes() const { return node_->attributes; }
  size_t input_count() const { return node_->inputs.size(); }
  size_t output_count() const { return node_->outputs.size(); }
  /// Whether optional input i is given.
  bool has_input(size_t i) const { return i < node_->inputs.size() && node_->inputs[i].valid(); }
  const ir::Value& input(size_t i) const { return graph_->value(node_->inputs[i]); }
  /// Not for `infer`, which makes the outputs.
  const ir::Value& output(size_t i) const { return graph_->value(node_->outputs[i]); }

 private:
  const ir::Graph* graph_;
  const ir::Node* node_;
};

/// The kernels whose rates machines have apart (ir::Device); what is neither is priced as a product.
enum class Kernel : uint8_t { kProduct, kConvolution, kAttention };

/// Floating-point operations and bytes moved to and from memory, of one run at a number of samples.
struct Work {
  double flops = 0;
  double bytes = 0;
  /// Bytes that the kernel allocates beside inputs and outputs and frees again, at most; a + b * samples.
  double scratch = 0;
  Kernel kernel = Kernel::kProduct;
};

/// Builds the gradient nodes of one forward node. Made by passes/differentiate.
class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;
  virtual const NodeView& forward() const = 0;
  virtual ir::ValueId input(size_t i) const = 0;
  virtual ir::ValueId output(size_t i) const = 0;
  /// The gradient of output i; invalid where nothing below depends on it.
  virtual ir::ValueId output_gradient(size_t i) const = 0;
  /// Whether the gradient of input i is wanted (something trainable lies on that side).
  virtual bool wants(size_t i) const = 0;
  /// Appends a node and returns its outputs. `for_input` tells whose gradient it helps to compute: the phase is W
  /// where that input does not depend on the batch (weights and what is computed from weights alone), else I.
  virtual std::vector<ir::ValueId> add(size_t for_input, std::string_view op, std::vector<ir::ValueId> inputs,
                                       ir::Attributes attributes = {}) = 0;
  /// The same for ops with one output.
  ir::ValueId add_one(size_t for_input, std::string_view op, std::vector<ir::ValueId> inputs,
                      ir::Attributes attributes = {}) {
    return add(for_input, op, std::move(inputs), std::move(attributes)).front();
  }
  /// Sums a gradient down to the shape of input i, undoing broadcasting (a no-op where shapes agree).
  virtual ir::ValueId reduce_to_input(size_t i, ir::ValueId gradient) = 0;
  virtual void set_input_gradient(size_t i, ir::ValueId gradient) = 0;
};

/// Writes the C++ of one node. Made by codegen/. Expressions are text of ours only: identifiers made from ids and
/// numbers; attribute strings never reach it unencoded.
class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual const NodeView& node() const = 0;
  /// The C++ expression of input i, such as "v16" or "w[3]"; "{}" where it is absent.
  virtual std::string in(size_t i) const = 0;
  /// A dim as an expression of the sample count, such as "64", "b" or "4 * b".
  virtual std::string dim(ir::Dim dim) const = 0;
  /// A shape as a braced list of int64_t, such as "{b, 64}".
  virtual std::string dims(const ir::Shape& shape) const = 0;
  /// The options of a tensor that the node makes from nothing: of the type, where the stage's others lie.
  virtual std::string options(ir::DType dtype) = 0;
  /// An expression of type graphpipe::runtime::RandomKey for this node: (seed, step, node id of the forward node,
  /// first sample).
  virtual std::string random_key() const = 0;
  /// Declares `at::Tensor v17 = expression;` for output i and records the per-op header, such as "ATen/ops/relu.h".
  virtual void assign(size_t i, std::string_view expression, std::string_view header) = 0;
  /// Records a further header that an expression or statement of this node needs.
  virtual void include(std::string_view header) = 0;
  /// A statement of its own, such as the unpacking of a tuple. `local(name)` gives a name unique to this node.
  virtual void statement(std::string_view text, std::string_view header) = 0;
  virtual std::string local(std::string_view name) const = 0;
};

/// How a test fills one input of an example.
struct ExampleInput {
  enum class Fill : uint8_t { kNormal, kPositive, kUniform01, kInteger, kBool, kPermutation };
  Fill fill = Fill::kNormal;
  ir::DType dtype = ir::DType::kFloat32;
  ir::Shape shape;
  /// kNormal: mean 0, deviation 1. kPositive: [low + 0.5, low + 2). kUniform01: (0.05, 0.95). kInteger: whole numbers
  /// of [low, high) in `dtype`. kPermutation: distinct odd multiples of 1/8 around 0 in random order, so that no value
  /// lies on a kink or ties with another.
  int64_t low = 0, high = 2;
  /// Whether the input stands for a weight (batch kind none) rather than an activation.
  bool is_param = false;
  /// An absent optional input.
  bool absent = false;
};

/// A small case that a test infers, emits, compiles, runs and compares.
struct Example {
  std::vector<ExampleInput> inputs;
  ir::Attributes attributes;
  size_t outputs = 1;
};

/// Which elements of the inputs an element of the output depends on: what passes ask instead of knowing names.
enum class Dependence : uint8_t {
  kAny,
  /// On the element in its place, in every input, with broadcasting; no attribute names an axis.
  kElement,
  /// It is the element of input 0 at the same place in row-major order: only the shape differs.
  kSameOrder,
  /// On the elements of input 0 along attribute `axis` (default -1); the shape is that of input 0.
  kAlongAxis,
};

/// Where an operator that makes features puts them in its output.
enum class FeatureAxis : uint8_t { kUnknown, kSecond, kLast };

/// What a value without a batch axis is to the samples: the sum, or the mean, of what each has alone, or neither.
enum class SampleSum : uint8_t { kNone, kSum, kMean };

/// In which type an operator computes where a model of float32 is trained in 16 bits (passes/lower_precision.h). The
/// assignment is that of torch.autocast for GPUs (PyTorch's documentation, "CUDA Ops that can autocast"), but that
/// reductions, resampling and recurrent layers stay in float32 too.
enum class Precision : uint8_t {
  /// In the type of its floating-point inputs; in float32 where they differ.
  kAsInputs,
  /// In float32: its result loses what 16 bits cannot hold.
  kFloat32,
  /// In 16 bits: products whose time is worth it, summed up in float32.
  kLower,
};

/// The labels of a mean over those that count.
struct CountedLabels {
  size_t input = 0;
  int64_t ignore_index = 0;
};

struct OpDef {
  std::string_view name;
  Precision precision = Precision::kAsInputs;
  /// Whether this node computes in float32 although others of the operator need not. Null: never.
  bool (*keeps_float32)(const NodeView&) = nullptr;
  /// A weight that stands beside the result of a product (kLower) is the product's bias, an operand of it in PyTorch:
  /// it takes the type of the product.
  bool adds_bias = false;
  /// Where input i of two is one number: the factor by which output 0 is the other input. Null, or none: it is no
  /// multiple.
  std::optional<double> (*factor_of)(size_t i, double number) = nullptr;
  /// Types and batch kinds of the outputs; problems name the node by its origin.
  Result<std::vector<ir::Value>> (*infer)(const NodeView&) = nullptr;
  Work (*work)(const NodeView&, Samples) = nullptr;
  /// Tensors as large as the largest of its inputs and outputs that the kernel holds beside them, at most: what work_of
  /// adds to the scratch that `work` counts.
  double temporaries = 0;
  /// The product of matrices that the node is, where the runtime chooses its kernel (runtime/kernels/product.h). Null:
  /// it is none.
  wire::Product (*product)(const NodeView&, Samples) = nullptr;
  /// Null for ops without a derivative (integers, comparisons): a gradient then stops here.
  Status (*gradient)(GradientBuilder&) = nullptr;
  void (*emit)(Emitter&) = nullptr;
  /// Instead of `emit`, where output 0 is a share of a parameter's gradient and nothing else reads it: statements that
  /// add the share to the tensor that the expression `place` names, undefined before the first share. Null: codegen
  /// emits the node and adds its output.
  void (*accumulate)(Emitter&, std::string_view place) = nullptr;
  /// Whether `accumulate` makes the share first, for the kernel cannot add: its memory counts. Null: never.
  bool (*makes_share)(const NodeView&, Samples) = nullptr;
  /// `accumulate` may leave a sparse sum (runtime/kernels/table_rows.h), which only entries like this one add to.
  bool adds_rows = false;
  Dependence dependence = Dependence::kAny;
  FeatureAxis features = FeatureAxis::kUnknown;
  /// Results of four axes lie in memory with axes 1 and 2 exchanged: LibTorch's attention puts the heads of a position
  /// side by side.
  bool heads_lie_inside = false;
  /// A product that takes operands of three and more axes as one stack of matrices: LibTorch copies an operand whose
  /// outer axes do not lie as one.
  bool stacks_matrices = false;
  /// Whether the output shares memory with input 0. Null: never.
  bool (*is_view)(const NodeView&) = nullptr;
  /// Of a view that is input 0 with its axes in another order: for each axis of the output that of the input. Null: it
  /// is not.
  std::vector<int> (*axes_order)(const NodeView&) = nullptr;
  /// Whether this node works on the samples of one micro-batch together (docs/semantics.md, section 1). Null: never.
  /// What makes a value of kind kMixed mixes anyway; this is for nodes whose output keeps its batch axis all the same,
  /// such as a training-mode BatchNormalization.
  bool (*mixes_samples)(const NodeView&) = nullptr;
  /// What output 0 is to the samples, given the same of each input (sample_sum.h). Null: neither sum nor mean. Micro-
  /// batches and replicas may divide the samples of a loss that is a sum or mean.
  SampleSum (*sample_sum)(const NodeView&, std::span<const SampleSum> inputs) = nullptr;
  /// Whether output 0 is a mean over the labels that are not to be ignored; its sum is the same node with the attribute
  /// reduction="sum". Null or nothing: it is not, or no label is ignored, so that each sample counts alike.
  std::optional<CountedLabels> (*counted_mean)(const NodeView&) = nullptr;
  /// The integers that input i may hold; not bounded where the node does not tell. Null: it tells of none.
  wire::IdBounds (*ids)(const NodeView&, size_t i) = nullptr;
  /// Whether output 0 holds the elements of input 0, each of them, as they are: in order where `dependence` says so
  /// too. Null: where `dependence` is kSameOrder.
  bool (*keeps_elements)(const NodeView&) = nullptr;
  /// Whether output 0 holds whole rows of input 0, a table, that input 1 names. Null: never.
  bool (*looks_up_rows)(const NodeView&) = nullptr;
  /// Samples that the node needs together: with fewer its result is constant, or not defined. Null: 1.
  int64_t (*fewest_samples)(const NodeView&) = nullptr;
  /// The attributes that the node has where the model is evaluated and not trained: Dropout is off, BatchNormalization
  /// takes its running statistics. Of its outputs the first alone is then made. Null, or none: it computes the same.
  std::optional<ir::Attributes> (*in_evaluation)(const NodeView&) = nullptr;
  /// Inputs of floating type that are taken as given, as a bit mask: no gradient goes to them.
  uint32_t constant_inputs = 0;
  /// Draws random numbers, keyed by (seed, step, node, sample).
  bool is_random = false;
  /// Inputs that this node updates in place (running statistics), as a bit mask. Null: none.
  uint32_t (*updates_inputs)(const NodeView&) = nullptr;
  std::vector<Example> examples;
};

/// The entry of an op, or null.
const OpDef* find_op(std::string_view name);
/// The dependence of an op; kAny for a name that no entry has.
Dependence dependence_of(std::string_view name);
/// Whether the node only rearranges the elements of input 0 (OpDef::keeps_elements), and whether it leaves their order.
bool keeps_elements(const NodeView& node);
bool keeps_order(const NodeView& node);
/// Whether the node looks up rows of a table, its input 0 (OpDef::looks_up_rows).
bool looks_up_rows(const NodeView& node);
/// Whether output 0 of the node shares memory with input 0 (OpDef::is_view).
bool is_view(const NodeView& node);
/// OpDef::work, with OpDef::temporaries in its scratch.
Work work_of(const OpDef& entry, const NodeView& node, Samples samples);
/// All entries, by name.
std::span<const OpDef* const> all_ops();

}  // namespace graphpipe::ops
