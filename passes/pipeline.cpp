#include "passes/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "ir/verify_graph.h"
#include "passes/attach_loss.h"
#include "passes/check_types.h"
#include "passes/differentiate.h"
#include "passes/drop_dead_nodes.h"
#include "passes/fuse_attention.h"
#include "passes/fuse_layers.h"
#include "passes/fuse_linear.h"
#include "passes/lower_precision.h"
#include "passes/merge_identical_nodes.h"
#include "passes/separate_samples.h"
#include "passes/split_slices.h"

namespace graphpipe::passes {
namespace {

constexpr std::array kTrainingPipeline = {
    PassEntry{"attach-loss", "Appends the loss as an output. First, because what the loss does not need is dead.",
              attach_loss},
    PassEntry{"drop-dead-nodes", "Drops what no output needs. Early, so that later passes see only what is trained.",
              drop_dead_nodes},
    PassEntry{
        "separate-samples",
        "Rewrites look-ups and reshapes that mix samples in form only. Before differentiate, so that gradients keep "
        "their batch axis too; what it leaves dead goes with the next pass.",
        separate_samples},
    PassEntry{"split-slices",
              "Makes slices that together are all of a tensor one Split. After separate-samples, which takes look-ups "
              "apart; before differentiate, because the gradient of a Split joins its parts.",
              split_slices},
    PassEntry{"fuse-layers",
              "Makes LayerNorm, RMSNorm, Gelu, Silu and rotary embeddings that are written as arithmetic one node "
              "each. Before differentiate, "
              "because their gradients save less.",
              fuse_layers},
    PassEntry{
        "fuse-attention",
        "Makes scaled dot-product attention one node. Before differentiate, because its gradient keeps one number "
        "per row of scores instead of the scores.",
        fuse_attention},
    PassEntry{"fuse-linear",
              "Makes products with weights and their biases one node each. After separate-samples, which moves such "
              "products; before merge-identical-nodes, which drops the transposed weights that it leaves.",
              fuse_linear},
    PassEntry{
        "merge-identical-nodes",
        "Merges equal masks, tables and views of weights. Before differentiate, because a gradient node names the "
        "forward node that it serves.",
        merge_identical_nodes},
    PassEntry{
        "lower-precision",
        "Lets matrix products, convolutions and what follows them compute in 16 bits, where the user asks for it. "
        "After all that recognises or merges operators of float32; before differentiate, so that gradients are "
        "computed in the types of their values and those of parameters come back to float32.",
        lower_precision},
    PassEntry{"differentiate", "Appends the gradient nodes. Last: after it the ids never change.", differentiate},
};

}  // namespace

std::span<const PassEntry> training_pipeline() { return kTrainingPipeline; }

Result<ir::Graph> run_pipeline(ir::Graph graph, const PassContext& context, const PipelineOptions& options) {
  const auto named = std::ranges::find(kTrainingPipeline, options.stop_after, &PassEntry::name);
  if (!options.stop_after.empty() && named == kTrainingPipeline.end()) {
    std::string names;
    for (const PassEntry& pass : kTrainingPipeline) names += text(names.empty() ? "" : ", ", pass.name);
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText(std::string(options.stop_after)),
                      .message = "there is no pass of this name",
                      .hint = "use one of " + names};
  }
  for (const PassEntry& pass : kTrainingPipeline) {
    const auto start = std::chrono::steady_clock::now();
    GP_TRY(graph, pass.run(std::move(graph), context));
    GP_TRY_VOID(ir::verify_graph(graph, check_types));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (options.observe) options.observe(pass, graph, Seconds(elapsed.count()));
    if (pass.name == options.stop_after) break;
  }
  return graph;
}

}  // namespace graphpipe::passes
