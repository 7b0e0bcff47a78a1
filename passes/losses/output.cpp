// output:NAME[,sum]: the loss is a scalar output of the model: a mean over the samples, or with `sum` a sum.

#include <algorithm>
#include <map>

#include "passes/losses/counted_mean.h"
#include "passes/losses/loss_def.h"
#include "passes/losses/loss_terms.h"

namespace graphpipe::passes {
namespace {

using ir::ValueId;

constexpr LossOption kOutputOptions[] = {{.name = "sum", .has_value = false}};

/// Appends a copy of the node with new outputs, and gives the first of them.
Result<ValueId> append_copy(LossBuilder& builder, ir::Node node) {
  node.outputs.clear();
  GP_TRY(const ir::NodeId id, append_node(builder.graph(), std::move(node)));
  return builder.graph().node(id).outputs.front();
}

/// The sums that the means over counted labels divide, passed through copies of the nodes behind them to `output`.
Result<ValueId> append_sum(LossBuilder& builder, const CountedMean& mean, ValueId output) {
  std::map<ValueId, ValueId> sums;
  const auto append = [&](ir::Node node) -> Status {
    const ValueId replaced = node.outputs.front();
    GP_TRY(sums[replaced], append_copy(builder, std::move(node)));
    return Ok{};
  };
  for (const ir::NodeId id : mean.means) {
    ir::Node node = builder.graph().node(id);
    node.attributes.set("reduction", std::string("sum"));
    GP_TRY_VOID(append(std::move(node)));
  }
  for (const CountedMean::Step& step : mean.behind) {
    ir::Node node = builder.graph().node(step.node);
    if (step.equal.valid()) {  // a sum plus 0 is one, though its rule would count the 0 once per piece
      sums[node.outputs.front()] = sums.at(step.equal);
      continue;
    }
    for (ValueId& input : node.inputs)
      if (const auto sum = sums.find(input); sum != sums.end()) input = sum->second;
    GP_TRY_VOID(append(std::move(node)));
  }
  return sums.at(output);
}

/// The sum of a term over the samples, as `scales` has its divisor.
Result<ValueId> append_term(LossBuilder& builder, const LossTerms::Term& term, ValueId scales) {
  ValueId sum;
  if (term.mean.valid()) {
    ir::Node node = builder.graph().node(term.mean);
    node.attributes.set("reduction", std::string("sum"));
    GP_TRY(sum, append_copy(builder, std::move(node)));
  } else {
    GP_TRY(sum, builder.append("ScaleBySamples", {term.value}));
  }
  const auto place = term.mean.valid() ? static_cast<int64_t>(term.divisor) + 1 : int64_t{0};
  return builder.append("ScaleLossTerm", {sum, scales}, {{"term", place}});
}

/// The terms, each times its scale, passed through copies of the nodes behind them to `output`.
Result<ValueId> append_terms(LossBuilder& builder, const LossTerms& found, ValueId output) {
  const ValueId scales = builder.add_scale(ir::DType::kFloat32, found.divisors.size());
  std::map<ValueId, ValueId> sums;
  for (const LossTerms::Term& term : found.terms) {
    GP_TRY(sums[term.value], append_term(builder, term, scales));
  }
  for (const LossTerms::Step& step : found.steps) {
    ir::Node node = builder.graph().node(step.node);
    const ValueId replaced = node.outputs.front();
    for (const size_t i : step.inputs) node.inputs[i] = sums.at(node.inputs[i]);
    GP_TRY(sums[replaced], append_copy(builder, std::move(node)));
  }
  return sums.at(output);
}

Result<ValueId> as_scalar(LossBuilder& builder, ValueId value) {
  if (builder.type(value).shape.empty()) return value;
  return builder.append("Reshape", {value}, {{"shape", ir::Shape{}}});
}

Result<AttachedLoss> attach_output(LossBuilder& builder, ValueId output) {
  const std::optional<ir::Dim> count = ir::element_count(builder.type(output).shape);
  if (!count || *count != ir::Dim::fixed(1))
    return bad_loss(builder.spec().output, "a loss must be a scalar, this output is not", "name a scalar output");
  if (builder.spec().options.has("sum")) {
    GP_TRY(const ValueId sum, as_scalar(builder, output));
    return AttachedLoss{sum, {.normalizer = wire::LossNormalizer::kOne}};
  }
  // A forward-only graph keeps the model's outputs, except one that is computed in another way as the loss.
  const auto drop_output = [&] {
    std::erase_if(builder.graph().outputs(), [&](const ir::Output& of_model) { return of_model.value == output; });
  };
  if (const std::optional<CountedMean> mean = find_counted_mean(builder.graph(), output)) {
    drop_output();
    GP_TRY(ValueId sum, append_sum(builder, *mean, output));
    GP_TRY(sum, as_scalar(builder, sum));
    return AttachedLoss{sum, mean->stated};
  }
  if (const std::optional<LossTerms> found = find_loss_terms(builder.graph(), output)) {
    drop_output();
    GP_TRY(ValueId sum, append_terms(builder, *found, output));
    GP_TRY(sum, as_scalar(builder, sum));
    return AttachedLoss{sum, {.terms = found->divisors}};
  }
  GP_TRY(const ValueId scalar, as_scalar(builder, output));
  GP_TRY(const ValueId sum, builder.append("ScaleBySamples", {scalar}));
  return AttachedLoss{sum, {}};
}

}  // namespace

extern const LossDef kOutputLoss = {.name = "output", .options = kOutputOptions, .attach = attach_output};

}  // namespace graphpipe::passes
