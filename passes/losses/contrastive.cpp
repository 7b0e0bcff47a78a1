// contrastive:OUTPUT: symmetric cross entropy of a square similarity matrix, as in CLIP (Radford et al., ICML 2021,
// figure 3). The sum is the mean times the number of samples that are compared.

#include "passes/losses/loss_def.h"

namespace graphpipe::passes {
namespace {

Result<AttachedLoss> attach_contrastive(LossBuilder& builder, ir::ValueId output) {
  const ir::Shape& shape = builder.type(output).shape;
  if (shape != ir::Shape{ir::Dim::batch(), ir::Dim::batch()})
    return bad_loss(builder.spec().output, "a contrastive loss needs a similarity output of shape [batch, batch]",
                    "name the output that compares all samples with all, such as logits_per_image");
  GP_TRY(const ir::ValueId sum, builder.append("ContrastiveLossSum", {output}));
  return AttachedLoss{sum, {.compares_samples = true}};
}

}  // namespace

extern const LossDef kContrastiveLoss = {.name = "contrastive", .attach = attach_contrastive};

}  // namespace graphpipe::passes
