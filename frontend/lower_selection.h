#pragma once
// Nodes that read what a mask picks (frontend/selection.h).

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether the node reads picked places, their coordinates or their number.
bool reads_selection(Lowering& lowering, const OnnxNode& node);
/// Lowers such a node. Errors: kUnsupportedOp if its result would depend on how many places are picked.
Status lower_on_selection(NodeContext& context);
/// The cases: nodes that look up or write at coordinates (lower_at_places.cpp), that transform coordinates
/// (move_coordinates.cpp), that read rows and no coordinates (lower_picked_rows.cpp), and among the latter those that
/// compute row by row (at_all_places.cpp).
Status gather_at_places(NodeContext& context);
Status scatter_at_places(NodeContext& context);
Status move_coordinates(NodeContext& context);
Status lower_picked_rows(NodeContext& context);
Status run_at_all_places(NodeContext& context);

/// A Slice of one axis of fixed size between data-dependent bounds, such as the bag of an nn.EmbeddingBag between its
/// offsets: a mask picks the places in between (lower_slice_between.cpp).
bool is_between_data(NodeContext& context);
Status slice_between_data(NodeContext& context);

/// Null if input i is absent or has no axis of picked places; `rows_of` also if it is not rows.
const Selected* selected_input(NodeContext& context, size_t i);
const Selected* rows_of(NodeContext& context, size_t i);
bool is_of(const Selected* selected, Selected::Kind kind);

/// Whether two values are the same, as determined by the nodes that compute them, none of which may be random:
/// exporters write a mask again for each of its uses. False if that takes too many nodes.
bool same_value(const ir::Graph& graph, ir::ValueId a, ir::ValueId b);
/// The selection for the operand `given` of a NonZero: equal masks share one selection.
Result<size_t> selection_by(NodeContext& context, ir::ValueId given);
/// If the node's sum counts the places of a mask, binds its result to their number too.
Status note_count_of_mask(NodeContext& context);
/// `value` at the picked places and `otherwise` at the others. Its last axes are those of the box, followed by `behind`
/// others; the result has all axes of the box.
Result<ir::ValueId> keep_picked(NodeContext& context, const Selection& selection, ir::ValueId value, size_t behind,
                                double otherwise);
/// Binds an output to `value`, which the file sees as `type`. Errors: kUnsupportedOp if rows do not have the axes of
/// the box in place of those of the file.
Status bind_selected(NodeContext& context, size_t output, ir::TensorType type, ir::ValueId value, Selected selected);
Diagnostic refuse_selection(const NodeContext& context, std::string_view what);

}  // namespace graphpipe::frontend
