#pragma once
// The graph of stages as a picture, and what each stage is made of.

#include <string>
#include <vector>

#include "driver/pipeline/pipeline.h"
#include "driver/report/html/html.h"

namespace graphpipe::driver {

/// An SVG: stages from left to right by their distance from the inputs, tensors as lines, each box a link that
/// opens the stage's operators. More than 200 stages are not drawn: empty.
std::string stage_picture(const Pipeline& pipeline, const PartOf& part);

/// The same as a file of its own, without links; empty as above.
std::string stage_svg(const Pipeline& pipeline);

/// The graph in the language of Graphviz: stages with their devices, micro-batch, time and weights, tensors with their
/// bytes. Of any size; it holds no name of the model.
std::string stage_dot(const Pipeline& pipeline);

/// A table of all stages, each with a link to its operators.
std::string stage_table(const Pipeline& pipeline, const PartOf& part);

/// For each stage a closed section with its operators. What it holds has the id (`part.ids`, "stage-" and the stage's
/// number), so that a browser opens the section where a link leads there.
std::string stage_operators(const Pipeline& pipeline, const PartOf& part);

/// The modules of a stage, as a terminal would show them: ASCII, and cut where they are very many; empty where they are
/// not known. Not encoded for a page.
std::string stage_name(const Pipeline& pipeline, ir::StageId id);

}  // namespace graphpipe::driver
