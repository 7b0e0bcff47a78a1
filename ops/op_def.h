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
#include "ops/parameter_role.h"
#include "support/result.h"
#include "wire/id_bounds.h"
#include "wire/product_table.h"

namespace graphpipe::ops {

/// The ONNX opset whose meaning the entries have.
inline constexpr int kInternalOpset = 21;

/// A node with the values around it, as inference, cost estimation and emission see it.
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

/// The kinds of kernels for which machines have separate rates (ir::Device); everything else is priced as a product.
/// Functions: norms, softmax, exponentials and what is made of them.
enum class Kernel : uint8_t { kProduct, kConvolution, kWinograd, kDepthwise, kAttention, kFunction };

/// Floating-point operations, and bytes moved to and from memory, of one run for a number of samples.
struct Work {
  double flops = 0;
  double bytes = 0;
  /// An upper bound on the bytes that the kernel allocates temporarily in addition to inputs and outputs; a + b *
  /// samples.
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
  /// The gradient of output i; invalid if nothing depends on that output.
  virtual ir::ValueId output_gradient(size_t i) const = 0;
  /// Whether the gradient of input i is wanted (that is, something trainable contributes to it).
  virtual bool wants(size_t i) const = 0;
  /// Appends a node and returns its outputs. `for_input` tells whose gradient it helps to compute: the phase is W if
  /// that input does not depend on the batch (weights and what is computed from weights alone), otherwise I.
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

/// Writes the C++ of one node. Implemented by codegen/. Expressions contain only our own text: identifiers made from
/// ids and numbers; attribute strings never reach it unencoded.
class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual const NodeView& node() const = 0;
  /// The C++ expression of input i, such as "v16" or "w[3]"; "{}" if it is absent.
  virtual std::string in(size_t i) const = 0;
  /// A dim as an expression of the sample count, such as "64", "b" or "4 * b".
  virtual std::string dim(ir::Dim dim) const = 0;
  /// A shape as a braced list of int64_t, such as "{b, 64}".
  virtual std::string dims(const ir::Shape& shape) const = 0;
  /// The options of a newly created tensor: the given type, on the device of the stage's other tensors.
  virtual std::string options(ir::DType dtype) = 0;
  /// An expression of type graphpipe::runtime::RandomKey for this node: (seed, step, place of the forward node among
  /// those that draw, first sample).
  virtual std::string random_key() const = 0;
  /// Declares `at::Tensor v17 = expression;` for output i and records the per-op header, such as "ATen/ops/relu.h".
  virtual void assign(size_t i, std::string_view expression, std::string_view header) = 0;
  /// Records an additional header that an expression or statement of this node needs.
  virtual void include(std::string_view header) = 0;
  /// A separate statement, such as the unpacking of a tuple. `local(name)` returns a name unique to this node.
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
  /// Whether the input represents a weight (batch kind none) rather than an activation.
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

/// Which input elements an output element depends on, so that passes can ask instead of recognising names.
enum class Dependence : uint8_t {
  kAny,
  /// On the element at the same position of every input, with broadcasting; no attribute names an axis.
  kElement,
  /// It equals the element of input 0 at the same position in row-major order: only the shape differs.
  kSameOrder,
  /// On the elements of input 0 along attribute `axis` (default -1); the shape is that of input 0.
  kAlongAxis,
  /// It equals the element of input 0 at the same position, which is repeated along axes of size 1 and in front.
  kRepeated,
};

/// Where an operator that produces features puts them in its output.
enum class FeatureAxis : uint8_t { kUnknown, kSecond, kLast };

/// How a value without a batch axis relates to the samples: the sum, or the mean, of per-sample values, or neither.
enum class SampleSum : uint8_t { kNone, kSum, kMean };

/// In which type an operator computes if a float32 model is trained in 16 bits (passes/lower_precision.h). The
/// assignment is that of torch.autocast for GPUs (PyTorch's documentation, "CUDA Ops that can autocast"), except that
/// reductions, resampling and recurrent layers stay in float32 too.
enum class Precision : uint8_t {
  /// In the type of its floating-point inputs; in float32 if they differ.
  kAsInputs,
  /// In float32: its result needs more than 16 bits.
  kFloat32,
  /// In 16 bits: products for which it saves enough time, accumulated in float32.
  kLower,
  /// In the type of its first input, where that is float32 or bfloat16; the others are float32 all the same.
  kAsFirstInput,
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
  /// A weight that is combined with the result of a product (kLower) is the product's bias, an operand of it in
  /// PyTorch: it takes the type of the product.
  bool adds_bias = false;
  /// If input i of two is a scalar: the factor by which output 0 is a multiple of the other input. Null, or none: it is
  /// not a multiple.
  std::optional<double> (*factor_of)(size_t i, double number) = nullptr;
  /// Types and batch kinds of the outputs; problems name the node by its origin.
  Result<std::vector<ir::Value>> (*infer)(const NodeView&) = nullptr;
  Work (*work)(const NodeView&, Samples) = nullptr;
  /// An upper bound on the temporaries of the kernel, in tensors of the size of the largest of its inputs and outputs:
  /// what work_of adds to the scratch that `work` counts.
  double temporaries = 0;
  /// The matrix product that the node is, if the runtime chooses its kernel (runtime/kernels/product.h). Null: it is
  /// not one.
  wire::Product (*product)(const NodeView&, Samples) = nullptr;
  /// The pass of a convolution that the node is, if the runtime chooses its method (runtime/kernels/convolution.h).
  std::optional<wire::Convolution> (*convolution)(const NodeView&, Samples) = nullptr;
  /// Null for ops without a derivative (integers, comparisons): gradients stop here.
  Status (*gradient)(GradientBuilder&) = nullptr;
  void (*emit)(Emitter&) = nullptr;
  /// Replaces `emit` where nothing reads input 0 afterwards, whose memory is its own and which has the type of output
  /// 0: the result takes its place, with the bits and the strides that `emit` gives. Null: the kernel makes new memory.
  void (*emit_in_place)(Emitter&) = nullptr;
  /// Whether `emit` gives each output memory of its own, which no input and no other output shares, and keeps no
  /// reference to an input. Null: not known.
  bool (*owns_outputs)(const NodeView&) = nullptr;
  /// Replaces `emit` if output 0 is a share of a parameter's gradient and nothing else reads it: statements that add
  /// the share to the tensor that the expression `place` names, undefined before the first share. Null: codegen emits
  /// the node and adds its output.
  void (*accumulate)(Emitter&, std::string_view place) = nullptr;
  /// Whether `accumulate` computes the share first, since the kernel cannot accumulate: its memory counts. Null: never.
  bool (*makes_share)(const NodeView&, Samples) = nullptr;
  /// `accumulate` may produce a sparse sum (runtime/kernels/table_rows.h), to which only such entries can add.
  bool adds_rows = false;
  Dependence dependence = Dependence::kAny;
  FeatureAxis features = FeatureAxis::kUnknown;
  /// What a parameter at input i is; past the end, and where kConstant, the op does not say.
  std::vector<ParameterRole> roles;
  /// The attribute `axis` of a node that has none, where the op has that attribute.
  std::optional<int64_t> default_axis;
  /// Results with four axes, up to this many, and as many as input 0, have the second and the third to last swapped in
  /// memory: attention stores the heads of a position contiguously.
  size_t heads_lie_inside_up_to = 0;
  /// A product that treats operands of three or more axes as one stack of matrices: LibTorch copies an operand whose
  /// outer axes cannot be merged without a copy.
  bool stacks_matrices = false;
  /// Inputs that the kernel reads as the rows of a matrix, and copies where their outer axes cannot be merged.
  std::vector<size_t> read_as_rows;
  /// Inputs that it copies where their elements are not contiguous and in order.
  std::vector<size_t> read_in_order;
  /// Whether the output shares memory with input 0. Null: never.
  bool (*is_view)(const NodeView&) = nullptr;
  /// For a view that permutes the axes of input 0: for each axis of the output the axis of the input. Null: it is not
  /// one.
  std::vector<int> (*axes_order)(const NodeView&) = nullptr;
  /// For a node whose output 0 repeats input 0, or a tensor of its size that the node makes where it is no view, along
  /// axes that input 0 may lack (at::expand): those axes, ascending. Null: it does not.
  std::vector<int> (*repeated_axes)(const NodeView&) = nullptr;
  /// Whether this node combines the samples of one micro-batch (docs/semantics.md, section 1). Null: never. Nodes that
  /// produce a value of kind kMixed mix anyway; this is for nodes whose output keeps its batch axis nevertheless, such
  /// as a training-mode BatchNormalization.
  bool (*mixes_samples)(const NodeView&) = nullptr;
  /// Whether a node that mixes samples, and its gradients, take nothing of other samples but sums over them, which
  /// replicas add up with each other (runtime/replica_exchange.h). Null: never.
  bool (*sums_over_replicas)(const NodeView&) = nullptr;
  /// How outputs of kind kMixed relate to the samples, given the same for each input (sample_sum.h). Null: they are
  /// neither sums nor means. The samples of a loss that is one may be divided among micro-batches and replicas.
  SampleSum (*sample_sum)(const NodeView&, std::span<const SampleSum> inputs) = nullptr;
  /// Whether output 0 is a mean over the labels that are not ignored; its sum is the same node with the attribute
  /// reduction="sum". Null or nothing: it is not, or no label is ignored, so that each sample counts equally.
  std::optional<CountedLabels> (*counted_mean)(const NodeView&) = nullptr;
  /// The bounds of the integers that input i may hold; unbounded if the node does not determine them. Null: always
  /// unbounded.
  wire::IdBounds (*ids)(const NodeView&, size_t i) = nullptr;
  /// Whether output 0 consists of exactly the elements of input 0, unchanged; in the same order if `dependence` also
  /// says so. Null: if `dependence` is kSameOrder.
  bool (*keeps_elements)(const NodeView&) = nullptr;
  /// Whether output 0 consists of whole rows of input 0, a table, that input 1 selects. Null: never.
  bool (*looks_up_rows)(const NodeView&) = nullptr;
  /// The minimum number of samples that the node needs together: with fewer its result is constant, or not defined.
  /// Null: 1.
  int64_t (*fewest_samples)(const NodeView&) = nullptr;
  /// The node's attributes if the model is evaluated and not trained: Dropout is off, BatchNormalization uses its
  /// running statistics. Only the first output is then computed. Null, or none: it computes the same.
  std::optional<ir::Attributes> (*in_evaluation)(const NodeView&) = nullptr;
  /// Inputs of floating type that are treated as constants, as a bit mask: no gradient flows to them.
  uint32_t constant_inputs = 0;
  /// Draws random numbers, keyed by (seed, step, node, sample).
  bool is_random = false;
  /// Inputs that this node updates in place (running statistics), as a bit mask. Null: none.
  uint32_t (*updates_inputs)(const NodeView&) = nullptr;
  std::vector<Example> examples;
};

/// The entry of an op, or null.
const OpDef* find_op(std::string_view name);
/// The dependence of an op; kAny for an unknown name.
Dependence dependence_of(std::string_view name);
/// Whether the node only rearranges the elements of input 0 (OpDef::keeps_elements), and whether it preserves their
/// order.
bool keeps_elements(const NodeView& node);
bool keeps_order(const NodeView& node);
/// Whether the node looks up rows of a table, its input 0 (OpDef::looks_up_rows).
bool looks_up_rows(const NodeView& node);
/// Whether output 0 of the node shares memory with input 0 (OpDef::is_view).
bool is_view(const NodeView& node);
/// Whether the kernel may copy an operand whose elements are repeated (OpDef::repeated_axes), to have it whole.
bool copies_repeated(const NodeView& node);
/// OpDef::work, with OpDef::temporaries in its scratch.
Work work_of(const OpDef& entry, const NodeView& node, Samples samples);
/// All entries, by name.
std::span<const OpDef* const> all_ops();

}  // namespace graphpipe::ops
