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

/// A table of all stages, and for each a section with its operators (id: `part.ids`, "stage-" and its number).
std::string stage_sections(const Pipeline& pipeline, const PartOf& part);

}  // namespace graphpipe::driver
