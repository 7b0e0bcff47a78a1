// output:NAME[,sum]: a scalar output of the model is the loss, a mean over the samples or a sum.

#include <algorithm>

#include "passes/losses/counted_mean.h"
#include "passes/losses/loss_def.h"

namespace graphpipe::passes {
namespace {

using ir::ValueId;

constexpr LossOption kOutputOptions[] = {{.name = "sum", .has_value = false}};

/// A copy of a node whose outputs are new.
Result<ValueId> append_copy(LossBuilder& builder, ir::Node node) {
  node.outputs.clear();
  GP_TRY(const ir::NodeId id, append_node(builder.graph(), std::move(node)));
  return builder.graph().node(id).outputs.front();
}

/// The sum of a mean over labels that count, through the nodes behind it.
Result<ValueId> append_sum(LossBuilder& builder, const CountedMean& mean) {
  ir::Node loss = builder.graph().node(mean.node);
  ValueId replaced = loss.outputs.front();
  loss.attributes.set("reduction", std::string("sum"));
  GP_TRY(ValueId sum, append_copy(builder, std::move(loss)));
  for (const ir::NodeId id : mean.behind) {
    ir::Node node = builder.graph().node(id);
    std::ranges::replace(node.inputs, replaced, sum);
    replaced = node.outputs.front();
    GP_TRY(sum, append_copy(builder, std::move(node)));
  }
  return sum;
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
  if (const std::optional<CountedMean> mean = find_counted_mean(builder.graph(), output)) {
    // Where nothing is trained the model's outputs stay; this one is the loss.
    std::erase_if(builder.graph().outputs(), [&](const ir::Output& of_model) { return of_model.value == output; });
    GP_TRY(ValueId sum, append_sum(builder, *mean));
    GP_TRY(sum, as_scalar(builder, sum));
    return AttachedLoss{sum, mean->stated};
  }
  GP_TRY(const ValueId scalar, as_scalar(builder, output));
  GP_TRY(const ValueId sum, builder.append("ScaleBySamples", {scalar}));
  return AttachedLoss{sum, {}};
}

}  // namespace

extern const LossDef kOutputLoss = {.name = "output", .options = kOutputOptions, .attach = attach_output};

}  // namespace graphpipe::passes
