#include "ops/sample_sum.h"

#include <algorithm>

namespace graphpipe::ops {
namespace {

bool is(const NodeView& node, size_t i, ir::BatchKind kind) { return node.has_input(i) && node.input(i).batch == kind; }

}  // namespace

SampleSum sums_samples(const NodeView& node, std::span<const SampleSum> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is(node, i, ir::BatchKind::kMixed)) return SampleSum::kNone;
  return SampleSum::kSum;
}

SampleSum as_first_input(const NodeView& node, std::span<const SampleSum> inputs) {
  // Casts to integers round, and so do their quotients.
  return inputs.empty() || !ir::is_floating(node.output(0).type.dtype) ? SampleSum::kNone : inputs.front();
}

SampleSum as_terms(const NodeView& node, std::span<const SampleSum> inputs) {
  SampleSum kind = SampleSum::kNone;
  bool has_constant = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is(node, i, ir::BatchKind::kNone)) {
      has_constant = true;
      continue;
    }
    if (inputs[i] == SampleSum::kNone || (kind != SampleSum::kNone && inputs[i] != kind)) return SampleSum::kNone;
    kind = inputs[i];
  }
  return has_constant && kind == SampleSum::kSum ? SampleSum::kNone : kind;
}

SampleSum as_factor(const NodeView& node, std::span<const SampleSum> inputs) {
  SampleSum kind = SampleSum::kNone;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is(node, i, ir::BatchKind::kNone)) continue;
    if (kind != SampleSum::kNone) return SampleSum::kNone;
    kind = inputs[i];
    if (kind == SampleSum::kNone) return kind;
  }
  return kind;
}

SampleSum as_first_beside_constant(const NodeView& node, std::span<const SampleSum> inputs) {
  return is(node, 1, ir::BatchKind::kNone) ? as_first_input(node, inputs) : SampleSum::kNone;
}

}  // namespace graphpipe::ops
