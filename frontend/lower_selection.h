#pragma once
// Nodes that read what a mask picks (frontend/selection.h).

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether the node reads picked places, coordinates of them or their number.
bool reads_selection(Lowering& lowering, const OnnxNode& node);
/// Lowers such a node. Errors: kUnsupportedOp where its result would depend on how many places are picked.
Status lower_on_selection(NodeContext& context);
/// Its parts: nodes that look up or write at coordinates (lower_at_places.cpp), that make other coordinates of some
/// (move_coordinates.cpp), that read rows and no coordinates (lower_picked_rows.cpp), and of these the ones that
/// compute row by row (at_all_places.cpp).
Status gather_at_places(NodeContext& context);
Status scatter_at_places(NodeContext& context);
Status move_coordinates(NodeContext& context);
Status lower_picked_rows(NodeContext& context);
Status run_at_all_places(NodeContext& context);

/// A Slice of one axis of fixed size between numbers that data say, such as the bag of an nn.EmbeddingBag between its
/// offsets: a mask picks the places in between (lower_slice_between.cpp).
bool is_between_data(NodeContext& context);
Status slice_between_data(NodeContext& context);

/// Null where input i is absent or has no axis of picked places; `rows_of` also where it is no rows.
const Selected* selected_input(NodeContext& context, size_t i);
const Selected* rows_of(NodeContext& context, size_t i);
bool is_of(const Selected* selected, Selected::Kind kind);

/// Whether two values are the same by the nodes that make them, all without chance: exporters write a mask anew for
/// each of its uses. False where it takes too many nodes to tell.
bool same_value(const ir::Graph& graph, ir::ValueId a, ir::ValueId b);
/// The selection of what NonZero reads as `given`: one mask picks the same places each time.
Result<size_t> selection_by(NodeContext& context, ir::ValueId given);
/// Binds the result of a sum, where it counts the places of a mask, to their number too.
Status note_count_of_mask(NodeContext& context);
/// `value` at the picked places and `otherwise` at the others. Its last axes are the box's and then `behind` others;
/// the result has all axes of the box.
Result<ir::ValueId> keep_picked(NodeContext& context, const Selection& selection, ir::ValueId value, size_t behind,
                                double otherwise);
void bind_selected(NodeContext& context, size_t output, ir::TensorType type, ir::ValueId value, Selected selected);
Diagnostic refuse_selection(const NodeContext& context, std::string_view what);

}  // namespace graphpipe::frontend
