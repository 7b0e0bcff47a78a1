// Sequences of tensors whose length the file fixes: they are not represented by nodes; their readers read the tensors.
// torch.split and torch.chunk arrive as SplitToSequence + SequenceAt with constant indices; both become Split.

#include <algorithm>

#include "frontend/full_size.h"
#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

constexpr int64_t kMaxParts = 4096;

/// The sizes of the parts along a fixed axis: an explicit list, or chunks of equal size with a smaller last one.
Result<std::vector<int64_t>> part_sizes(NodeContext& context, int64_t size, std::vector<int64_t> given, bool chunks) {
  if (chunks) {
    const int64_t chunk = given.empty() ? 1 : given[0];
    if (chunk <= 0 || size / chunk > kMaxParts)
      return context.problem(Code::kBadModel, text("splits ", size, " into parts of ", chunk), "export again");
    given.assign(static_cast<size_t>(size / chunk), chunk);
    if (size % chunk != 0) given.push_back(size % chunk);
  }
  int64_t rest = size;
  for (int64_t part : given) {
    if (part < 0 || part > rest)
      return context.problem(Code::kBadModel, text("its parts do not add up to ", size), "export the model again");
    rest -= part;
  }
  if (rest != 0)
    return context.problem(Code::kBadModel, text("its parts do not add up to ", size), "export the model again");
  return given;
}

/// The size of the axis that is split; the batch axis cannot be split.
Result<int64_t> fixed_size(NodeContext& context, int64_t axis) {
  const ir::Dim dim = context.type(0).shape[static_cast<size_t>(axis)];
  if (dim.is_fixed()) return dim.factor;
  return context.problem(
      Code::kMixesSamples, "cuts the batch axis into parts, of which a micro-batch may hold none or half of one",
      "split another axis, as parts of [samples, parts, ...]; a module that picks weights by what a "
      "part holds (an adapter per language) computes all of them and picks per sample by torch.where, "
      "or is exported with one kind only");
}

/// The parts of a list that is known at import time, such as a shape, are known too.
void bind_known_parts(NodeContext& context, const Known& list, const std::vector<int64_t>& sizes) {
  size_t from = 0;
  for (size_t part = 0; part < sizes.size(); ++part) {
    Binding binding;
    binding.known =
        Known{.dtype = list.dtype, .shape = {ir::Dim::fixed(sizes[part])}, .uniform = list.uniform, .elements = {}};
    if (list.uniform) binding.known->elements = {list.element(0)};
    for (int64_t i = 0; i < sizes[part] && !list.uniform; ++i) binding.known->elements.push_back(list.element(from++));
    binding.type = {list.dtype, binding.known->shape};
    if (context.has_output(part)) context.lowering().bind(context.node().outputs[part], std::move(binding));
  }
}

Status lower_split(NodeContext& context) {
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), context.rank(0)));
  GP_TRY(const int64_t size, fixed_size(context, axis));
  std::vector<int64_t> sizes;
  if (context.has_input(1)) {
    GP_TRY(sizes, context.integers(1, "part sizes"));
  } else {
    const auto parts = static_cast<int64_t>(context.node().outputs.size());
    const int64_t chunk = (size + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i) sizes.push_back(std::min(chunk, std::max<int64_t>(0, size - i * chunk)));
  }
  if (sizes.size() != context.node().outputs.size())
    return context.problem(Code::kBadModel, "has another number of outputs than of parts", "export the model again");
  GP_TRY(sizes, part_sizes(context, size, std::move(sizes), false));
  if (const Known* list = context.known(0); list != nullptr && !context.input(0).leaf && list->shape.size() == 1) {
    bind_known_parts(context, Known(*list), sizes);
    return Ok{};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  const size_t count = sizes.size();
  GP_TRY(const std::vector<ir::ValueId> parts,
         context.emit("Split", {input}, {{"axis", axis}, {"sizes", std::move(sizes)}}, count));
  for (size_t i = 0; i < count; ++i) context.bind(i, parts[i]);
  return Ok{};
}

/// The tensors of a sequence; those that a loop over bags has filled are not a list.
Result<std::vector<ir::ValueId>> sequence_of(NodeContext& context) {
  const Binding& binding = context.input(0);
  if (!binding.sequence.empty() || binding.is_empty_sequence) return binding.sequence;
  if (binding.stacked.valid())
    return context.problem(Code::kUnsupportedOp, "takes apart what a loop over the batch has filled",
                           "join it along its first axis");
  return context.problem(Code::kBadModel, "its input is no sequence", "export the model again");
}

void bind_sequence(NodeContext& context, std::vector<ir::ValueId> tensors) {
  Binding binding;
  binding.is_empty_sequence = tensors.empty();
  binding.sequence = std::move(tensors);
  context.lowering().bind(context.node().outputs[0], std::move(binding));
}

Status lower_split_to_sequence(NodeContext& context) {
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), context.rank(0)));
  GP_TRY(const int64_t size, fixed_size(context, axis));
  std::vector<int64_t> given;
  bool chunks = true;
  if (context.has_input(1)) {
    GP_TRY(given, context.integers(1, "part sizes"));
    chunks = context.rank(1) == 0;
  }
  GP_TRY(std::vector<int64_t> sizes, part_sizes(context, size, std::move(given), chunks));
  GP_TRY(const ir::ValueId input, context.value(0));
  const size_t count = sizes.size();
  GP_TRY(std::vector<ir::ValueId> parts,
         context.emit("Split", {input}, {{"axis", axis}, {"sizes", std::move(sizes)}}, count));
  // Without a split input and with keepdims=0 the parts lose the axis.
  if (!context.has_input(1) && context.int_attribute("keepdims", 1) == 0)
    for (ir::ValueId& part : parts) {
      GP_TRY(const std::vector<ir::ValueId> flat,
             context.emit("Squeeze", {part}, {{"axes", std::vector<int64_t>{axis}}}));
      part = flat.front();
    }
  bind_sequence(context, std::move(parts));
  return Ok{};
}

/// Input i as an index into `count` elements; `fallback` if it is not given.
Result<size_t> place_in_sequence(NodeContext& context, size_t i, size_t count, int64_t fallback) {
  std::vector<int64_t> position = {fallback};
  if (context.has_input(i)) {
    GP_TRY(position, context.integers(i, "position"));
  }
  if (position.size() != 1) return context.problem(Code::kBadModel, "its position is no scalar", "export again");
  const auto size = static_cast<int64_t>(count);
  const int64_t place = position[0] < 0 ? position[0] + size : position[0];
  if (place >= 0 && place < size) return static_cast<size_t>(place);
  return context.problem(Code::kBadModel, text("its position is ", position[0], " among ", size),
                         "export the model again");
}

Status lower_sequence_at(NodeContext& context) {
  GP_TRY(const std::vector<ir::ValueId> sequence, sequence_of(context));
  GP_TRY(const size_t place, place_in_sequence(context, 1, sequence.size(), 0));
  context.bind(0, sequence[place]);
  return Ok{};
}

Status lower_sequence_empty(NodeContext& context) {
  bind_sequence(context, {});
  return Ok{};
}

/// Inserts before the index, which may also be the end.
Status lower_sequence_insert(NodeContext& context) {
  GP_TRY(std::vector<ir::ValueId> sequence, sequence_of(context));
  if (std::ssize(sequence) >= kMaxParts)
    return context.problem(Code::kLimitExceeded, text("makes a sequence of more than ", kMaxParts, " tensors"),
                           "use one tensor");
  std::vector<int64_t> position = {std::ssize(sequence)};
  if (context.has_input(2)) {
    GP_TRY(position, context.integers(2, "position"));
  }
  if (position.size() != 1 || position[0] < -std::ssize(sequence) || position[0] > std::ssize(sequence))
    return context.problem(Code::kBadModel, "its position is none of the sequence", "export the model again");
  const int64_t place = position[0] < 0 ? position[0] + std::ssize(sequence) : position[0];
  GP_TRY(const ir::ValueId tensor, context.value(1));
  sequence.insert(sequence.begin() + place, tensor);
  bind_sequence(context, std::move(sequence));
  return Ok{};
}

Status lower_sequence_erase(NodeContext& context) {
  GP_TRY(std::vector<ir::ValueId> sequence, sequence_of(context));
  GP_TRY(const size_t place, place_in_sequence(context, 1, sequence.size(), -1));
  sequence.erase(sequence.begin() + static_cast<std::ptrdiff_t>(place));
  bind_sequence(context, std::move(sequence));
  return Ok{};
}

Status lower_sequence_length(NodeContext& context) {
  GP_TRY(const std::vector<ir::ValueId> sequence, sequence_of(context));
  Binding binding;
  binding.type = {ir::DType::kInt64, {}};
  binding.known = Known::scalar(ir::DType::kInt64, Number::of_whole(std::ssize(sequence)));
  context.lowering().bind(context.node().outputs[0], std::move(binding));
  return Ok{};
}

/// What a loop has stacked, [n, m, ...], becomes [n * m, ...], concatenated along its first axis.
Status join_stacked(NodeContext& context, ir::ValueId stacked) {
  const ir::Shape shape = context.lowering().graph().value(stacked).type.shape;
  if (context.int_attribute("axis", 0) != 0 || shape.size() < 2)
    return context.problem(Code::kUnsupportedOp, "joins the results of a loop along another axis than the first",
                           "transpose after joining");
  if (context.int_attribute("new_axis", 0) != 0) {
    context.bind(0, stacked);
    return Ok{};
  }
  const std::optional<ir::Dim> rows = ir::element_count({shape[0], shape[1]});
  if (!rows) return context.problem(Code::kLimitExceeded, "joins more than 2^48 rows", "use smaller tensors");
  ir::Shape joined = {*rows};
  joined.insert(joined.end(), shape.begin() + 2, shape.end());
  return context.emit_outputs("Reshape", {stacked}, {{"shape", std::move(joined)}});
}

Status lower_concat_from_sequence(NodeContext& context) {
  if (context.input(0).stacked.valid()) return join_stacked(context, context.input(0).stacked);
  GP_TRY(std::vector<ir::ValueId> parts, sequence_of(context));
  if (parts.empty()) return context.problem(Code::kBadModel, "joins a sequence of no tensors", "leave it out");
  const bool stacks = context.int_attribute("new_axis", 0) != 0;
  const size_t rank = context.lowering().graph().value(parts[0]).type.shape.size() + (stacks ? 1 : 0);
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), rank));
  if (stacks)
    for (ir::ValueId& part : parts) {
      GP_TRY(const std::vector<ir::ValueId> wide,
             context.emit("Unsqueeze", {part}, {{"axes", std::vector<int64_t>{axis}}}));
      part = wide.front();
    }
  return context.emit_outputs("Concat", std::move(parts), {{"axis", axis}});
}

Status lower_sequence_construct(NodeContext& context) {
  GP_TRY(std::vector<ir::ValueId> tensors, context.all_values());
  bind_sequence(context, std::move(tensors));
  return Ok{};
}

/// 0, L, 2 L, ..., and the end: the offsets of bags of equal length.
std::optional<BagOffsets> bag_offsets(NodeContext& context) {
  if (context.node().inputs.size() != 2 || context.int_attribute("axis", 0) != 0) return std::nullopt;
  const ir::Graph& graph = context.lowering().graph();
  const ir::ValueId starts = context.input(0).value;
  const ir::NodeId producer = starts.valid() ? graph.value(starts).producer : ir::NodeId();
  const Known* end = context.known(1);
  if (!producer.valid() || graph.node(producer).op != "Iota" || end == nullptr || end->elements.size() != 1)
    return std::nullopt;
  const ir::Attributes& attributes = graph.node(producer).attributes;
  const ir::Dim bags = graph.value(starts).type.shape[0];
  const double length = attributes.get_double("delta", 1);
  if (attributes.get_double("start", 0) != 0 || !(length >= 1 && length < 1e12) || bags.is_fixed()) return std::nullopt;
  int64_t all = 0;
  if (__builtin_mul_overflow(bags.factor, static_cast<int64_t>(length), &all)) return std::nullopt;
  if (end->elements[0] != Number::of_whole(all, bags.power)) return std::nullopt;
  return BagOffsets{.bags = bags, .length = static_cast<int64_t>(length)};
}

/// Data-dependent bag offsets, one per sample, followed by the end of the last bag.
bool ends_bags_of_data(NodeContext& context) {
  if (context.node().inputs.size() != 2 || context.int_attribute("axis", 0) != 0 || context.rank(0) != 1) return false;
  const ir::TensorType type = context.type(0);
  const Known* end = context.known(1);
  return context.known(0) == nullptr && !ir::is_floating(type.dtype) && type.shape[0] == ir::Dim::batch() &&
         end != nullptr && end->elements.size() == 1 && context.rank(1) == 1;
}

/// The operand of a list of sizes that is data-dependent, while others give the number of samples.
std::optional<std::string> size_of_data(NodeContext& context) {
  std::optional<std::string> found;
  bool counts_samples = false;
  for (size_t i = 0; i < context.node().inputs.size(); ++i) {
    const Known* known = context.known(i);
    const ir::TensorType& type = context.type(i);
    if (type.dtype != ir::DType::kInt64 || type.shape != ir::Shape{ir::Dim::fixed(1)}) return std::nullopt;
    if (known != nullptr && known->elements.size() == 1) counts_samples |= known->elements[0].power == 1;
    else found = context.node().inputs[i];
  }
  return counts_samples ? found : std::nullopt;
}

Status lower_concat(NodeContext& context) {
  const std::optional<BagOffsets> offsets = bag_offsets(context);
  if (!offsets && ends_bags_of_data(context))
    return context.problem(
        Code::kMixesSamples,
        "joins a number to one of each sample, as nn.EmbeddingBag does with its offsets: bags lie end "
        "to end, so no sample can be taken out of their ids",
        "give nn.EmbeddingBag ids of [samples, ids of a bag] without offsets; or export with fixed "
        "sizes and add --one-sample, which trains a whole batch of bags as one sample");
  if (const std::optional<std::string> size = size_of_data(context); size && !offsets)
    return context.problem(Code::kUnresolvedShape,
                           text("makes a shape of the number of samples and of ", quoted(ModelText(*size)),
                                ", which is a number of the data: no tensor can have such a size"),
                           kFullSize);
  if (!offsets) return lower_plain(context);
  Binding binding;
  binding.type = {context.type(0).dtype, {}};
  binding.offsets = offsets;
  context.lowering().bind(context.node().outputs[0], std::move(binding));
  return Ok{};
}

}  // namespace

std::vector<HandlerEntry> sequence_handlers() {
  return {{"Split", lower_split},
          {"SplitToSequence", lower_split_to_sequence},
          {"SequenceAt", lower_sequence_at},
          {"SequenceEmpty", lower_sequence_empty},
          {"SequenceInsert", lower_sequence_insert},
          {"SequenceErase", lower_sequence_erase},
          {"SequenceLength", lower_sequence_length},
          {"SequenceConstruct", lower_sequence_construct},
          {"ConcatFromSequence", lower_concat_from_sequence},
          {"Concat", lower_concat}};
}

}  // namespace graphpipe::frontend
