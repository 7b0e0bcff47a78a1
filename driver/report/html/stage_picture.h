#pragma once
// The graph of stages as a picture, and what each stage is made of.

#include <string>
#include <vector>

#include "driver/pipeline/pipeline.h"
#include "driver/report/html/html.h"

namespace graphpipe::driver {

/// An SVG: stages from left to right by their distance from the inputs, tensors as lines, each box a link to the
/// stage's section. More than 200 stages are not drawn: empty.
std::string stage_picture(const Pipeline& pipeline, const PartOf& part);

/// The same as a file of its own, without links; empty as above.
std::string stage_svg(const Pipeline& pipeline);

/// The graph in the language of Graphviz: stages with their devices, micro-batch, time and weights, tensors with their
/// bytes. Of any size; it holds no name of the model.
std::string stage_dot(const Pipeline& pipeline);

/// A table of all stages, each with a link to its operators.
std::string stage_table(const Pipeline& pipeline, const PartOf& part);

/// For each stage a section with its operators (id: `part.ids`, "stage-" and its number).
std::string stage_operators(const Pipeline& pipeline, const PartOf& part);

/// The modules of a stage, cut where they are many; empty where they are not known. Not encoded.
std::string short_stage_name(const Pipeline& pipeline, ir::StageId id);

}  // namespace graphpipe::driver
