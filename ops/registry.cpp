// The op dictionary: an explicit list of families. Entries are found by name.

#include <algorithm>
#include <vector>

#include "ops/families.h"
#include "ops/infer_helpers.h"
#include "support/check.h"

namespace graphpipe::ops {
namespace {

// One line per family.
constexpr std::span<const OpDef> (*kFamilies[])() = {
    unary_ops,     binary_ops,  power_ops,       bitwise_ops,    shape_ops,         movement_ops,
    reduce_ops,    index_ops,   scatter_ops,     gather_nd_ops,  order_ops,         clip_ops,
    pad_ops,       matmul_ops,  linear_ops,      attention_ops,  softmax_ops,       cross_entropy_ops,
    loss_ops,      norm_ops,    group_norm_ops,  batch_norm_ops, lrn_ops,           conv_ops,
    pool_ops,      random_ops,  onnx_loss_ops,   einsum_ops,     resize_ops,        grid_sample_ops,
    recurrent_ops, fourier_ops, determinant_ops, region_ops,     gradient_flow_ops, rotary_ops,
};

std::vector<const OpDef*> sorted_rows() {
  std::vector<const OpDef*> rows;
  for (auto* family : kFamilies) {
    for (const OpDef& row : family()) rows.push_back(&row);
  }
  std::ranges::sort(rows, {}, &OpDef::name);
  const auto same_name = [](const OpDef* a, const OpDef* b) { return a->name == b->name; };
  GP_CHECK(std::ranges::adjacent_find(rows, same_name) == rows.end());
  return rows;
}

}  // namespace

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> rows = sorted_rows();
  return rows;
}

const OpDef* find_op(std::string_view name) {
  const auto rows = all_ops();
  const auto row = std::ranges::lower_bound(rows, name, {}, &OpDef::name);
  return row != rows.end() && (*row)->name == name ? *row : nullptr;
}

Work work_of(const OpDef& entry, const NodeView& node, Samples samples) {
  Work work = entry.work == nullptr ? Work{} : entry.work(node, samples);
  double largest = 0;
  for (size_t i = 0; i < node.input_count(); ++i)
    if (node.has_input(i)) largest = std::max(largest, bytes_of(node.input(i), samples));
  for (size_t i = 0; i < node.output_count(); ++i) largest = std::max(largest, bytes_of(node.output(i), samples));
  work.scratch += entry.temporaries * largest;
  return work;
}

Dependence dependence_of(std::string_view name) {
  const OpDef* row = find_op(name);
  return row == nullptr ? Dependence::kAny : row->dependence;
}

bool keeps_elements(const NodeView& node) {
  const OpDef* row = find_op(node.node().op);
  if (row == nullptr) return false;
  return row->keeps_elements != nullptr ? row->keeps_elements(node) : row->dependence == Dependence::kSameOrder;
}

bool keeps_order(const NodeView& node) {
  const Dependence dependence = dependence_of(node.node().op);
  return keeps_elements(node) && (dependence == Dependence::kSameOrder || dependence == Dependence::kElement);
}

bool is_view(const NodeView& node) {
  const OpDef* op = find_op(node.node().op);
  return op != nullptr && op->is_view != nullptr && op->is_view(node);
}

bool copies_repeated(const NodeView& node) {
  const OpDef* op = find_op(node.node().op);
  return !is_view(node) && (op == nullptr || (op->dependence != Dependence::kElement && op->repeated_axes == nullptr));
}

bool looks_up_rows(const NodeView& node) {
  const OpDef* op = find_op(node.node().op);
  return op != nullptr && op->looks_up_rows != nullptr && op->looks_up_rows(node);
}

}  // namespace graphpipe::ops
