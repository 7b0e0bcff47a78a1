// Row-wise operators on what a mask picks: they run on all places of the mask.

#include <algorithm>

#include "frontend/lower_selection.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// Whether an element of the results depends only on elements of the same row.
bool is_by_row(std::string_view op) {
  const ops::Dependence dependence = dependence_of(op);
  return dependence == ops::Dependence::kElement || dependence == ops::Dependence::kAlongAxis ||
         op == "LayerNormalization" || op == "RMSNormalization" || op == "Gather" || op == "Split" || op == "Slice" ||
         op == "Concat" || op == "MatMul" || op == "Dropout";
}

/// A node whose operands have the axes of the box: those that broadcast along the places get axes of size 1.
class AtAllPlaces {
 public:
  AtAllPlaces(NodeContext& context, OnnxNode node) : context_(context), node_(std::move(node)) {}

  Status run();

 private:
  Status align(bool broadcasts);
  Status spread(size_t input);
  Status check_axis();
  Status check_product();
  Status find_places_of_look_up();
  Status mark_results();
  void rename(size_t input, Binding binding);

  NodeContext& context_;
  OnnxNode node_;
  /// The rank of the largest operand in the file, and its axis of places.
  size_t rank_ = 0, axis_ = 0;
  Selected selected_;
  Selection selection_;
};

void AtAllPlaces::rename(size_t input, Binding binding) {
  const std::string name =
      context_.lowering().unused_name(text(node_.outputs[0], " operand ", input, " at all places"));
  binding.name = name;
  context_.lowering().bind(name, std::move(binding));
  node_.inputs[input] = name;
}

/// Finds the axis of places in the broadcast shape of the operands.
Status AtAllPlaces::align(bool broadcasts) {
  bool found = false;
  for (size_t i = 0; i < node_.inputs.size(); ++i)
    if (context_.has_input(i) && (broadcasts || rows_of(context_, i) != nullptr))
      rank_ = std::max(rank_, context_.rank(i));
  for (size_t i = 0; i < node_.inputs.size(); ++i) {
    const Selected* rows = rows_of(context_, i);
    if (rows == nullptr) continue;
    if (rows->inner > 0) return refuse_selection(context_, "reads what a mask picks, joined with another axis");
    const size_t axis = rows->axis + rank_ - context_.rank(i);
    if (found && (rows->selection != selected_.selection || axis != axis_ || rows->outer != selected_.outer))
      return refuse_selection(context_, "combines what different masks pick");
    selected_ = *rows;
    axis_ = axis;
    found = true;
  }
  selection_ = context_.lowering().selections()[selected_.selection];
  return Ok{};
}

/// An operand that is not rows: its size along the places must be 1.
Status AtAllPlaces::spread(size_t input) {
  Binding binding = context_.input(input);
  const size_t rank = binding.type.shape.size(), missing = rank_ - rank;
  if (binding.known && binding.known->uniform) {
    binding.known->shape.assign(rank, Dim::fixed(1));
    binding.type.shape = binding.known->shape;
    binding.value = {};
    binding.selected.reset();
    rename(input, std::move(binding));
    return Ok{};
  }
  if (rank + axis_ < rank_ || rank <= rank_ - axis_ - 1) return Ok{};
  if (binding.selected || binding.type.shape[axis_ - missing] != Dim::fixed(1))
    return refuse_selection(context_, "combines what a mask picks with a tensor that has another size along it");
  GP_TRY(const ValueId value, context_.value(input));
  Shape shape = binding.type.shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis_ - missing),
               selection_.box.size() - selected_.outer - 1, Dim::fixed(1));
  GP_TRY(const auto made, context_.emit("Reshape", {value}, {{"shape", shape}}));
  Binding spread_out;
  spread_out.type = {binding.type.dtype, std::move(shape)};
  spread_out.value = made[0];
  rename(input, std::move(spread_out));
  return Ok{};
}

/// The axis that the node works along must be behind the places; it is counted from the end, since axes are added.
Status AtAllPlaces::check_axis() {
  const std::optional<int64_t> default_axis = default_axis_of(node_.op);
  auto attribute = std::ranges::find(node_.attributes, "axis", &Attribute::name);
  if (attribute == node_.attributes.end() && !default_axis) return Ok{};
  if (attribute == node_.attributes.end()) {
    Attribute added;
    added.name = "axis";
    added.kind = Attribute::Kind::kInt;
    added.i = *default_axis;
    node_.attributes.push_back(added);
    attribute = std::prev(node_.attributes.end());
  }
  GP_TRY(const int64_t axis, context_.axis(attribute->i, rank_));
  if (static_cast<size_t>(axis) <= axis_) return refuse_selection(context_, "works along the places that a mask picks");
  attribute->i = axis - static_cast<int64_t>(rank_);
  return Ok{};
}

Status AtAllPlaces::check_product() {
  const bool left = rows_of(context_, 0) != nullptr, right = rows_of(context_, 1) != nullptr;
  const bool by_weight = left && !right && context_.rank(1) == 2 && axis_ + 1 < rank_;
  const bool each = left && right && axis_ + 2 < rank_;
  if (by_weight || each) return Ok{};
  return refuse_selection(context_, "multiplies what a mask picks in a form that is not supported");
}

/// Looks up rows of a table by picked numbers: the places take the position of the table's axis.
Status AtAllPlaces::find_places_of_look_up() {
  GP_TRY(const int64_t axis, context_.axis(context_.int_attribute("axis", 0), context_.rank(0)));
  axis_ += static_cast<size_t>(axis);
  return Ok{};
}

/// The results have the axes of the box; in the file they have one axis of places.
Status AtAllPlaces::mark_results() {
  const size_t more = selection_.box.size() - selected_.outer - 1;
  Dim places = picked_places(selected_.selection, selection_.box);
  for (size_t k = 0; k < selected_.outer; ++k) places.power -= selection_.box[k].power;
  selected_.axis = axis_;
  for (size_t i = 0; i < node_.outputs.size(); ++i) {
    Binding* made = context_.has_output(i) ? context_.lowering().find(node_.outputs[i]) : nullptr;
    if (made == nullptr || made->selected) continue;
    GP_TRY(const ValueId value, context_.lowering().value_of(*made, node_));
    ir::TensorType type = made->type;
    if (type.shape.size() <= axis_ + more)
      return refuse_selection(context_, "makes something without the places that a mask picks");
    const auto at = type.shape.begin() + static_cast<std::ptrdiff_t>(axis_);
    type.shape.erase(at, at + static_cast<std::ptrdiff_t>(more));
    type.shape[axis_] = places;
    GP_TRY_VOID(bind_selected(context_, i, std::move(type), value, selected_));
  }
  return Ok{};
}

Status AtAllPlaces::run() {
  const bool broadcasts = node_.op != "MatMul" && node_.op != "Gather" && node_.op != "Split" && node_.op != "Slice" &&
                          node_.op != "Dropout";
  GP_TRY_VOID(align(broadcasts));
  if (node_.op == "Gather" && rows_of(context_, 0) == nullptr) {
    GP_TRY_VOID(find_places_of_look_up());
  } else {
    GP_TRY_VOID(check_axis());
  }
  if (node_.op == "Gather" && rows_of(context_, 0) != nullptr && rows_of(context_, 1) != nullptr)
    return refuse_selection(context_, "looks up what a mask picks in what a mask picks");
  if (node_.op == "MatMul") GP_TRY_VOID(check_product());
  for (size_t i = 0; i < node_.inputs.size(); ++i) {
    if (!context_.has_input(i)) continue;
    if (rows_of(context_, i) == nullptr) {
      if (broadcasts) GP_TRY_VOID(spread(i));
      continue;
    }
    Binding places;
    places.value = context_.input(i).value;
    places.type = context_.lowering().graph().value(places.value).type;
    rename(i, std::move(places));
  }
  const Handler handler = find_handler(node_.op);
  NodeContext inner(context_.lowering(), node_);
  GP_TRY_VOID((handler != nullptr ? handler : lower_plain)(inner));
  return mark_results();
}

}  // namespace

Status run_at_all_places(NodeContext& context) {
  if (!is_by_row(context.node().op)) return refuse_selection(context, "reads what a mask picks");
  return AtAllPlaces(context, context.node()).run();
}

}  // namespace graphpipe::frontend
