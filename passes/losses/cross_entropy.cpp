// cross_entropy:OUTPUT,LABEL[,ignore=N][,axis=N]: of logits and class indices, mean over the labels not ignored.

#include "passes/losses/class_axis.h"
#include "passes/losses/loss_def.h"

namespace graphpipe::passes {
namespace {

/// PyTorch's default.
constexpr int64_t kDefaultIgnored = -100;

constexpr LossOption kCrossEntropyOptions[] = {{"ignore"}, {.name = "axis", .low = 0, .high = 63}};
constexpr std::string_view kSoftmaxes[] = {"Softmax", "LogSoftmax"};

Result<AttachedLoss> attach_cross_entropy(LossBuilder& builder, ir::ValueId logits) {
  const ir::LossSpec& spec = builder.spec();
  const ir::Input* existing = builder.known_label();
  const ir::ValueId known_label = existing ? existing->value : ir::ValueId();
  GP_TRY(const int axis, find_class_axis(builder.graph(), logits, known_label, spec));
  ir::Shape shape = builder.type(logits).shape;
  shape.erase(shape.begin() + axis);
  const ir::DType dtype = known_label.valid() ? builder.type(known_label).dtype : ir::DType::kInt64;
  GP_TRY(const ir::ValueId label, builder.label_of(dtype, shape));
  const int64_t ignored = spec.options.get_int("ignore", kDefaultIgnored);
  GP_TRY(const ir::ValueId sum,
         builder.append("CrossEntropyLossSum", {logits, label}, {{"axis", int64_t{axis}}, {"ignore_index", ignored}}));
  return AttachedLoss{
      sum, {.normalizer = wire::LossNormalizer::kCountedPositions, .label = spec.label, .ignore_index = ignored}};
}

}  // namespace

extern const LossDef kCrossEntropyLoss = {.name = "cross_entropy",
                                          .takes_label = true,
                                          .options = kCrossEntropyOptions,
                                          .own_activations = kSoftmaxes,
                                          .attach = attach_cross_entropy};

}  // namespace graphpipe::passes
