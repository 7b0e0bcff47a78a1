#include "passes/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "passes/expression.h"
#include "passes/rebuild.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Shape;
using ir::ValueId;

/// A value and the constant that it has been multiplied by.
struct Scaled {
  ValueId value;
  double factor = 1;
};

/// A mask and the shape of the scores to which it is added: that of the product, or [B, W, H, Q, K] with an axis for
/// windows, where the product has [B * W, H, Q, K].
struct AddedMask {
  ValueId value;
  Shape scores;
};

/// The parts of softmax(scale * left right + masks), where right is k transposed.
struct Scores {
  Scaled left, right;
  /// Of the product.
  Shape shape;
  std::vector<AddedMask> masks;
  double scale = 1;
  /// In place of what is marked here as later, or not up to the diagonal, there is a value that no score is below.
  ValueId replaced;
};

/// Models that write other values than -infinity mean -1e9 or the lowest of the type.
constexpr double kBelowScores = -1e8;
/// Scores, with an axis for windows, plus one mask, without it, plus another: nodes between a product and its softmax.
constexpr int kMaskSteps = 4;

class AttentionFusion {
 public:
  AttentionFusion(const Rebuilding& step, const Expressions& parts) : step_(step), parts_(parts) {}

  Result<Replacement> run() const {
    const ValueId v = step_.node.inputs[1];
    std::optional<Scores> scores = scores_under_softmax(without_hidden_rows(step_.node.inputs[0]));
    if (!scores || !takes(*scores, v)) return Replacement();
    GP_TRY(const ValueId k, transposed_back(scores->right.value));
    const std::optional<ValueId> few_keys = before_repeating(k), few_values = before_repeating(v);
    const bool are_shared = few_keys && few_values && shape(*few_keys) == shape(*few_values);
    std::vector<ValueId> inputs = {scores->left.value, are_shared ? *few_keys : k, are_shared ? *few_values : v};
    const bool is_causal = take_causal_masks(*scores);
    for (ValueId& input : inputs) {
      GP_TRY(input, with_windows(*scores, input));
    }
    GP_TRY(const ValueId mask, sum_of(scores->masks));
    if (mask.valid()) inputs.push_back(mask);
    const double scale = scores->left.factor * scores->right.factor * scores->scale;
    GP_TRY(const ValueId fused, append_like(step_.made, step_.node, "Attention", std::move(inputs),
                                            {{"causal", int64_t{is_causal}}, {"scale", scale}}));
    GP_TRY(const ValueId result, of_shape(fused, step_.outputs[0].type.shape));
    return Replacement({result});
  }

 private:
  const Shape& shape(ValueId value) const { return parts_.shape(value); }

  /// Strips the constants that multiply or divide the value, and collects them in one factor.
  Scaled without_factors(ValueId value) const {
    Scaled result{value};
    for (;;) {
      std::optional<std::pair<ValueId, double>> inner = parts_.with_constant(result.value, "Mul");
      if (const Node* quotient = parts_.made_by(result.value, "Div"); !inner && quotient != nullptr)
        if (const auto divisor = parts_.constant(quotient->inputs[1]); divisor && *divisor != 0)
          inner = std::pair(quotient->inputs[0], 1 / *divisor);
      if (!inner || parts_.value(inner->first).type != parts_.value(result.value).type) return result;
      result = {inner->first, result.factor * inner->second};
    }
  }

  /// The weights without the Where that zeroes fully masked rows: the kernel zeroes them too. ONNX's Attention detects
  /// these rows in the mask; PyTorch's exporter detects them by their softmax, which is NaN.
  ValueId without_hidden_rows(ValueId weights) const {
    const Node* chosen = parts_.made_by(weights, "Where");
    if (chosen == nullptr || parts_.constant(chosen->inputs[1]) != 0.0) return weights;
    const ValueId kept = chosen->inputs[2];
    if (shape(kept) != shape(weights)) return weights;
    if (const Node* nothing = parts_.made_by(chosen->inputs[0], "IsNaN"))
      return nothing->inputs[0] == kept ? kept : weights;
    return is_hidden_by(chosen->inputs[0], mask_under_softmax(kept)) ? kept : weights;
  }

  ValueId mask_under_softmax(ValueId weights) const {
    const std::optional<Scores> scores = scores_under_softmax(weights);
    return scores && scores->masks.size() == 1 ? scores->masks.front().value : ValueId();
  }

  /// Whether the value marks the rows that are fully masked: those whose maximum is -infinity.
  bool is_hidden_by(ValueId value, ValueId mask) const {
    const Node* is_hidden = parts_.made_by(value, "Equal");
    const Node* row_max = is_hidden != nullptr ? parts_.made_by(is_hidden->inputs[0], "ReduceMax") : nullptr;
    if (row_max == nullptr || !mask.valid() || row_max->inputs[0] != mask) return false;
    const std::optional<double> hidden = parts_.constant(is_hidden->inputs[1]);
    const std::vector<int64_t> axes = row_max->attributes.get_ints("axes");
    const auto rank = static_cast<int64_t>(shape(mask).size());
    return hidden && std::isinf(*hidden) && *hidden < 0 && axes.size() == 1 && (axes[0] == -1 || axes[0] == rank - 1);
  }

  std::optional<Scores> scores_under_softmax(ValueId weights) const {
    const Node* softmax = parts_.made_by(weights, "Softmax");
    if (softmax == nullptr) return std::nullopt;
    const auto rank = static_cast<int64_t>(shape(weights).size());
    const int64_t axis = softmax->attributes.get_int("axis", -1);
    if (axis != -1 && axis != rank - 1) return std::nullopt;
    const ValueId sum = softmax->inputs[0];
    if (std::optional<Scores> causal = replaced_scores(sum)) return causal;
    return masked_scores(sum, kMaskSteps);
  }

  /// Scores plus masks, with the axis of windows apart from that of samples or joined with it, in up to so many nodes.
  std::optional<Scores> masked_scores(ValueId sum, int steps) const {
    if (std::optional<Scores> plain = scores_of(sum)) return plain;
    if (steps == 0) return std::nullopt;
    const Node* parted = parts_.made_by(sum, "Reshape");
    if (parted != nullptr && has_heads_of(parted->inputs[0], sum)) return masked_scores(parted->inputs[0], steps - 1);
    const Node* add = parts_.made_by(sum, "Add");
    if (add == nullptr) return std::nullopt;
    for (size_t i = 0; i < 2; ++i) {
      if (shape(add->inputs[i]) != shape(sum)) continue;
      std::optional<Scores> scores = masked_scores(add->inputs[i], steps - 1);
      if (!scores) continue;
      scores->masks.push_back({add->inputs[1 - i], shape(sum)});
      return scores;
    }
    return std::nullopt;
  }

  /// Whether both values have the same last three axes: heads, rows and columns.
  bool has_heads_of(ValueId value, ValueId other) const {
    const Shape &left = shape(value), &right = shape(other);
    return left.size() > 3 && right.size() > 3 && std::equal(left.end() - 3, left.end(), right.end() - 3);
  }

  /// Where(later, lowest, scores), as masked_fill writes it, or Where(up to the diagonal, scores, lowest).
  std::optional<Scores> replaced_scores(ValueId sum) const {
    const Node* chosen = parts_.made_by(sum, "Where");
    const std::optional<Columns> marked = chosen != nullptr ? parts_.marked_columns(chosen->inputs[0]) : std::nullopt;
    if (!marked) return std::nullopt;
    const bool hides = *marked == Columns::kLater;
    const ValueId kept = chosen->inputs[hides ? 2 : 1];
    const std::optional<double> hidden = parts_.constant(chosen->inputs[hides ? 1 : 2]);
    if (!hidden || !(*hidden <= kBelowScores) || shape(kept) != shape(sum)) return std::nullopt;
    std::optional<Scores> scores = scores_of(kept);
    if (scores) scores->replaced = chosen->inputs[0];
    return scores;
  }

  std::optional<Scores> scores_of(ValueId value) const {
    const Scaled scaled = without_factors(value);
    const Node* product = parts_.made_by(scaled.value, "MatMul");
    if (product == nullptr) return std::nullopt;
    return Scores{.left = without_factors(product->inputs[0]),
                  .right = without_factors(product->inputs[1]),
                  .shape = shape(product->outputs[0]),
                  .masks = {},
                  .scale = scaled.factor,
                  .replaced = {}};
  }

  /// Whether the kernel supports these operands: one to three equal leading axes, fixed lengths, and one type.
  bool takes(const Scores& scores, ValueId v) const {
    const Shape &left = shape(scores.left.value), &right = shape(scores.right.value), &values = shape(v);
    const size_t rank = left.size();
    if (rank < 3 || rank > 5 || right.size() != rank || values.size() != rank) return false;
    const auto lead = [](const Shape& of) { return Shape(of.begin(), of.end() - 2); };
    if (lead(left) != lead(right) || lead(left) != lead(values)) return false;
    if (!left[rank - 2].is_fixed() || !left[rank - 1].is_fixed() || !right[rank - 1].is_fixed()) return false;
    if (values[rank - 1] != left[rank - 1] || values[rank - 2] != right[rank - 1]) return false;
    const ir::DType dtype = parts_.value(scores.left.value).type.dtype;
    if (scores.replaced.valid() && !is_square(scores, scores.replaced)) return false;
    const auto mask_fits = [&](const AddedMask& mask) {
      return parts_.value(mask.value).type.dtype == dtype && has_right_axes(mask, scores);
    };
    return std::ranges::all_of(scores.masks, mask_fits) && parts_.value(v).type.dtype == dtype &&
           step_.outputs[0].type.dtype == dtype;
  }

  /// The shape of the scores with an axis for windows, if a mask is added to them.
  const Shape* windows_of(const Scores& scores) const {
    const auto has_windows = [&](const AddedMask& mask) { return mask.scores != scores.shape; };
    const auto mask = std::ranges::find_if(scores.masks, has_windows);
    return mask == scores.masks.end() ? nullptr : &mask->scores;
  }
  /// Whether the mask is added to the same scores when all have the axis of windows that one has.
  bool has_right_axes(const AddedMask& mask, const Scores& scores) const {
    const Shape* const windows = windows_of(scores);
    if (windows == nullptr) return true;
    if (scores.shape.size() != 4 || windows->size() != 5) return false;
    if (mask.scores == *windows) return true;
    const Shape& sizes = shape(mask.value);
    return mask.scores == scores.shape && (sizes.size() < 4 || sizes.front() == ir::Dim::fixed(1));
  }

  /// Whether scores are hidden by a causal mask: square over the lengths of q and k, and row i hides the columns after
  /// i. It is taken out of the masks, unless others, which are no trained distances, may hide all that it leaves.
  bool take_causal_masks(Scores& scores) const {
    const auto hides_later = [&](const AddedMask& mask) {
      return parts_.is_causal_mask(mask.value) && is_square(scores, mask.value);
    };
    const auto is_distance = [&](const AddedMask& mask) {
      return parts_.is_trained(mask.value) && parts_.value(mask.value).batch == ir::BatchKind::kNone;
    };
    const auto is_harmless = [&](const AddedMask& mask) { return hides_later(mask) || is_distance(mask); };
    if (scores.replaced.valid()) return true;
    return std::ranges::all_of(scores.masks, is_harmless) && std::erase_if(scores.masks, hides_later) > 0;
  }

  /// q, k or v with the axis of windows, if a mask has it.
  Result<ValueId> with_windows(const Scores& scores, ValueId value) const {
    const Shape* const windows = windows_of(scores);
    if (windows == nullptr) return value;
    Shape parted = {windows->at(0), windows->at(1)};
    parted.insert(parted.end(), shape(value).begin() + 1, shape(value).end());
    return of_shape(value, parted);
  }
  Result<ValueId> of_shape(ValueId value, const Shape& wanted) const {
    if (shape(value) == wanted) return value;
    return append_like(step_.made, step_.node, "Reshape", {value}, {{"shape", wanted}});
  }
  Result<ValueId> sum_of(const std::vector<AddedMask>& masks) const {
    ValueId sum;
    for (const AddedMask& mask : masks) {
      if (!sum.valid()) {
        sum = mask.value;
        continue;
      }
      GP_TRY(sum, append_like(step_.made, step_.node, "Add", {sum, mask.value}));
    }
    return sum;
  }

  /// Whether a mask [.., n, n] is over the lengths of q and k.
  bool is_square(const Scores& scores, ValueId mask) const {
    const ir::Dim length = shape(mask).back();
    return length == shape(scores.left.value).end()[-2] && length == shape(scores.right.value).back();
  }

  /// If the value is k or v [B, H * n, K, D] with each head repeated n times for so many of q, [B, H, 1, K, D] expanded
  /// to [B, H, n, K, D]: that of H heads.
  std::optional<ValueId> before_repeating(ValueId value) const {
    const Node* joined = parts_.made_by(value, "Reshape");
    if (joined == nullptr || shape(value).size() != 4 || shape(joined->inputs[0]).size() != 5) return std::nullopt;
    const Node* repeated = parts_.made_by(joined->inputs[0], "Expand");
    if (repeated == nullptr) repeated = parts_.made_by(joined->inputs[0], "Tile");
    if (repeated == nullptr || shape(repeated->inputs[0]).size() != 5) return std::nullopt;
    const Node* parted = parts_.made_by(repeated->inputs[0], "Unsqueeze");
    if (parted == nullptr) parted = parts_.made_by(repeated->inputs[0], "Reshape");
    if (parted == nullptr || shape(parted->inputs[0]).size() != 4) return std::nullopt;
    const Shape &few = shape(parted->inputs[0]), &all = shape(value);
    const Shape single = {few[0], few[1], ir::Dim::fixed(1), few[2], few[3]};
    Shape expanded = single;
    expanded[2] = shape(joined->inputs[0])[2];
    const bool fits = shape(repeated->inputs[0]) == single && shape(joined->inputs[0]) == expanded &&
                      few[0] == all[0] && few[2] == all[2] && few[3] == all[3] && few[1].is_fixed() &&
                      expanded[2].is_fixed() && all[1] == ir::Dim::fixed(few[1].factor * expanded[2].factor);
    return fits ? std::optional(parted->inputs[0]) : std::nullopt;
  }

  /// k if `value` is k transposed, otherwise a new node that transposes the value.
  Result<ValueId> transposed_back(ValueId value) const {
    const Shape& found = shape(value);
    Shape wanted = found;
    std::swap(wanted[wanted.size() - 1], wanted[wanted.size() - 2]);
    // Exporters reshape to three axes around the transposition, which only joins and splits the leading axes.
    if (const Node* parted = parts_.made_by(value, "Reshape"))
      if (const Node* turned = parts_.made_by(parted->inputs[0], "Transpose"))
        if (const Node* joined = parts_.made_by(turned->inputs[0], "Reshape"))
          if (shape(joined->inputs[0]) == wanted && shape(turned->inputs[0]).size() == 3 &&
              turned->attributes.get_ints("perm") == std::vector<int64_t>{0, 2, 1} &&
              std::equal(wanted.end() - 2, wanted.end(), shape(turned->inputs[0]).end() - 2))
            return joined->inputs[0];
    std::vector<int64_t> perm(found.size());
    std::iota(perm.begin(), perm.end(), 0);
    ValueId from = value;
    if (const Node* turned = parts_.made_by(value, "Transpose")) {
      from = turned->inputs[0];
      perm = turned->attributes.get_ints("perm");
    }
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    if (std::is_sorted(perm.begin(), perm.end())) return from;
    return append_like(step_.made, step_.node, "Transpose", {from}, {{"perm", perm}});
  }

  const Rebuilding& step_;
  const Expressions& parts_;
};

}  // namespace

Result<Graph> fuse_attention(Graph graph, const PassContext&) {
  std::optional<Expressions> parts;
  return rebuild(std::move(graph), [&](const Rebuilding& step) -> Result<Replacement> {
    if (!parts) parts.emplace(step.made);
    if (step.node.op != "MatMul") return Replacement();
    return AttentionFusion(step, *parts).run();
  });
}

}  // namespace graphpipe::passes
